import { create, type MessageInitShape } from "@bufbuild/protobuf";
import { type Timestamp, timestampFromDate } from "@bufbuild/protobuf/wkt";
import fc from "fast-check";
import { expect, test, vi } from "vitest";
import {
  AccountsService,
  ListAccountsRequestSchema,
} from "../../gen/gateway/accounts/v1/accounts_pb.ts";
import {
  BillingService,
  ListTransfersRequestSchema,
} from "../../gen/gateway/billing/v1/billing_pb.ts";
import { ListChargesRequestSchema, UsageService } from "../../gen/gateway/usage/v1/usage_pb.ts";
import { ApiError } from "../../src/base/errors.ts";
import {
  askedPage,
  encodeTimeCursor,
  parseListCursor,
  parseTimeCursor,
  readPage,
  readTimeRange,
  type TimeCursor,
  walkPages,
  wholeList,
} from "../../src/base/paging.ts";
import { timesFrom } from "../support/arbitraries.ts";

const names = ["a", "b", "c", "d"];
const { listAccounts } = AccountsService.method;
const { listTransfers } = BillingService.method;
const { listCharges } = UsageService.method;
const call = { accountId: "acc_1" };

function list(pageSize: number, pageToken = "") {
  const request = create(ListAccountsRequestSchema, { pageSize, pageToken });
  return readPage(
    listAccounts,
    request,
    call,
    wholeList(names, (name) => name),
  );
}

test("pages follow each other, and a full last page has no token", async () => {
  const first = await list(2);
  expect(first.entries).toStrictEqual(["a", "b"]);
  const second = await list(2, first.nextPageToken);
  expect(second).toStrictEqual({ entries: ["c", "d"], nextPageToken: "" });
});

test("pages of any size are together the list, also where many entries have one time", async () => {
  const anyEntries = fc
    .array(timesFrom(new Date(0)), { maxLength: 12 })
    .map((times) => times.map((at, index) => ({ at, id: `req_${index}` })));
  const positionOf = ({ at, id }: TimeCursor) => `${String(at.getTime()).padStart(9, "0")} ${id}`;
  const property = fc.asyncProperty(
    anyEntries,
    fc.integer({ min: 1, max: 5 }),
    async (entries, pageSize) => {
      const all = entries.map(positionOf).sort();
      const read: TimeCursor[] = [];
      let pageToken = "";
      do {
        const page = await readPage(
          listAccounts,
          create(ListAccountsRequestSchema, { pageSize, pageToken }),
          call,
          {
            read: async (after, limit) => {
              expect(limit).toBe(pageSize + 1);
              const last = after === undefined ? "" : positionOf(parseTimeCursor(after));
              const further = entries.filter((one) => positionOf(one) > last);
              return further
                .sort((one, other) => (positionOf(one) < positionOf(other) ? -1 : 1))
                .slice(0, limit);
            },
            cursorOf: encodeTimeCursor,
          },
        );
        const isLast = page.nextPageToken === "";
        expect(page.entries.length).toBe(isLast ? all.length - read.length : pageSize);
        read.push(...page.entries);
        pageToken = page.nextPageToken;
      } while (pageToken !== "");
      expect(read.map(positionOf)).toEqual(all);
    },
  );
  await fc.assert(property);
});

test.for([0, 1, 499, 500, 501, 1_000, 1_001])(
  "a walk over %d entries has them once",
  async (count) => {
    const all = Array.from({ length: count }, (_, index) => index);
    const pages: number[][] = [];
    const read = async (after: string | undefined, limit: number) => {
      const start = after === undefined ? 0 : Number(after) + 1;
      return all.slice(start, start + limit);
    };
    for await (const page of walkPages({ read, cursorOf: String })) pages.push(page);
    expect(pages.flat()).toEqual(all);
    expect(pages.map(({ length }) => length)).toEqual(
      Array.from({ length: Math.ceil(count / 500) }, (_, index) =>
        Math.min(500, count - 500 * index),
      ),
    );
  },
);

test("a walk reads no page after one that is not full", async () => {
  const read = vi.fn(async () => ["a"]);
  for await (const page of walkPages({ read, cursorOf: (one) => one })) expect(page).toEqual(["a"]);
  expect(read).toHaveBeenCalledTimes(1);
});

test("a page has 50 entries where its request names no size", () => {
  expect(askedPage(listAccounts, create(ListAccountsRequestSchema), call).size).toBe(50);
});

const tokenOf = (cursor: string) =>
  askedPage(listAccounts, create(ListAccountsRequestSchema), call).tokenOf(cursor);
for (const { fault, pageToken } of [
  { fault: "is not base64url", pageToken: "a?" },
  { fault: "is not UTF-8", pageToken: `${tokenOf("")}_w` },
  { fault: "has more after it", pageToken: `${tokenOf("a")}=` },
  { fault: "has a NUL", pageToken: tokenOf("a\0") },
  { fault: "has another cursor", pageToken: changed(tokenOf("a"), -1) },
  { fault: "has another hash", pageToken: changed(tokenOf("a"), 0) },
  { fault: "is shorter than a hash", pageToken: "YWJj" },
  { fault: "is of an entry that is gone", pageToken: tokenOf("e") },
]) {
  test(`a token that ${fault} is an invalid request`, async () => {
    await expect(list(1, pageToken)).rejects.toThrow(invalid("page_token"));
  });
}

/** The token with another byte at a place. */
function changed(token: string, place: number): string {
  const bytes = Buffer.from(token, "base64url");
  const at = place < 0 ? bytes.length + place : place;
  bytes[at] = (bytes[at] ?? 0) ^ 1;
  return bytes.toString("base64url");
}

test("a cursor that should be a list is one", () => {
  expect(parseListCursor('["a",1]')).toEqual(["a", 1]);
  for (const cursor of ["", "{}", "[", "1"])
    expect(() => parseListCursor(cursor)).toThrow(invalid("page_token"));
});

test("a cursor of time and id is read as it was written", () => {
  const cursor = { at: new Date("2026-03-01T12:00:00.123Z"), id: "req_1" };
  expect(parseTimeCursor(encodeTimeCursor(cursor))).toStrictEqual(cursor);
  for (const text of ["", "req_1", "yesterday req_1", "+012026-01-01T00:00:00.000Z req_1"])
    expect(() => parseTimeCursor(text)).toThrow(ApiError);
});

type Charges = MessageInitShape<typeof ListChargesRequestSchema>;

test("a token continues its own list: of the same method, account and request", () => {
  const tags = { team: "a", env: "b" };
  const from = timestampFromDate(new Date(0));
  const asked: Charges = {
    filter: { keyId: "key_1", minChargedMicrocredits: 5n, tags },
    startAt: from,
  };
  const pageOf = (request: Charges, of = call) =>
    askedPage(listCharges, create(ListChargesRequestSchema, request), of);
  const pageToken = pageOf(asked).tokenOf("req_1");
  expect(Buffer.from(pageToken, "base64url")).toHaveLength(9 + "req_1".length);
  // Another size is no other list, and maps have no order.
  const reordered = { env: "b", team: "a" };
  const same: Charges = { ...asked, filter: { ...asked.filter, tags: reordered }, pageSize: 7 };
  expect(pageOf({ ...same, pageToken })).toMatchObject({ after: "req_1", size: 7 });
  const others: Charges[] = [
    {},
    { ...asked, accountId: "acc_1" },
    { ...asked, filter: { ...asked.filter, keyId: "key_2" } },
    { ...asked, filter: { ...asked.filter, minChargedMicrocredits: 6n } },
    { ...asked, filter: { ...asked.filter, tags: { team: "a" } } },
    { ...asked, endAt: timestampFromDate(new Date(0)) },
  ];
  for (const other of others)
    expect(() => pageOf({ ...other, pageToken })).toThrow(invalid("page_token"));
  expect(() => pageOf({ ...asked, pageToken }, { accountId: "acc_2" })).toThrow(
    invalid("page_token"),
  );
  const ofAccounts = tokenOf("a");
  const request = create(ListTransfersRequestSchema, { pageToken: ofAccounts });
  expect(() => askedPage(listTransfers, request, call)).toThrow(invalid("page_token"));
});

function invalid(field: string): unknown {
  const facts = expect.objectContaining({ field });
  return expect.objectContaining({ reason: "invalid_request", facts });
}

const now = new Date("2026-11-22T12:00:00Z");
const at = (text: string) => timestampFromDate(new Date(text));
const seconds = (count: bigint) => ({ seconds: count, nanos: 0 }) as Timestamp;

test("a range is read as it was asked", () => {
  expect(readTimeRange({}, now)).toStrictEqual({ from: undefined, to: undefined });
  const range = { startAt: at("2016-11-22T12:00:00Z"), endAt: at("2026-11-22T12:00:00Z") };
  expect(readTimeRange(range, now)).toStrictEqual({
    from: new Date("2016-11-22T12:00:00Z"),
    to: now,
  });
  // Clocks differ by seconds; an end may lie anywhere ahead.
  readTimeRange({ startAt: at("2026-11-22T12:05:00Z") }, now);
  readTimeRange({ startAt: at("0001-01-01T00:00:00Z"), endAt: at("0001-01-01T00:00:00Z") }, now);
  readTimeRange({ endAt: at("9999-12-31T23:59:59Z") }, now);
  readTimeRange({ startAt: at("2026-11-01T00:00:00Z"), endAt: at("2026-12-01T00:00:00Z") }, now);
});

for (const { fault, field, ...range } of [
  {
    fault: "goes backwards",
    startAt: at("2026-11-02T00:00:00Z"),
    endAt: at("2026-11-01T00:00:00Z"),
    field: "end_at",
  },
  { fault: "begins in the future", startAt: at("2026-11-22T12:05:00.001Z"), field: "start_at" },
  {
    fault: "is longer than ten years",
    startAt: at("2016-11-22T11:59:59Z"),
    endAt: at("2026-11-22T12:00:00Z"),
    field: "start_at",
  },
  {
    fault: "began more than ten years ago",
    startAt: at("2016-11-22T11:59:59Z"),
    field: "start_at",
  },
  { fault: "ends after the year 9999", endAt: at("+010000-01-01T00:00:00Z"), field: "end_at" },
  { fault: "ends long after the year 9999", endAt: seconds(2n ** 60n), field: "end_at" },
  { fault: "begins before the year 1", startAt: at("0000-12-31T23:59:59Z"), field: "start_at" },
  { fault: "ends before the year 1", endAt: at("0000-12-31T23:59:59Z"), field: "end_at" },
]) {
  test(`a range that ${fault} is an invalid request`, () => {
    expect(() => readTimeRange(range, now)).toThrow(invalid(field));
  });
}
