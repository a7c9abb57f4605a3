import { type Timestamp, timestampFromDate } from "@bufbuild/protobuf/wkt";
import fc from "fast-check";
import { expect, test, vi } from "vitest";
import { ApiError } from "../../src/base/errors.ts";
import {
  encodePageToken,
  encodeTimeCursor,
  pageSizeOf,
  parsePageToken,
  parseTimeCursor,
  readPage,
  readTimeRange,
  type TimeCursor,
  walkPages,
} from "../../src/base/paging.ts";
import { timesFrom } from "../support/arbitraries.ts";

const names = ["a", "b", "c", "d"];

function list(pageSize: number, pageToken = "") {
  return readPage(
    { pageSize, pageToken },
    {
      read: async (after, limit) => {
        const start = after === undefined ? 0 : names.indexOf(after) + 1;
        return names.slice(start, start + limit);
      },
      cursorOf: (name) => name,
    },
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
          { pageSize, pageToken },
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

test("a page has at most 1,000 entries, or as many as its list allows", () => {
  expect(pageSizeOf({ pageSize: 1_000 })).toBe(1_000);
  expect(pageSizeOf({ pageSize: 50 }, { sizeDefault: 5, sizeMax: 50 })).toBe(50);
  expect(pageSizeOf({ pageSize: 0 }, { sizeDefault: 5, sizeMax: 50 })).toBe(5);
  expect(() => pageSizeOf({ pageSize: 51 }, { sizeMax: 50 })).toThrow(invalid("page_size"));
});

test("a page size of 0 is the default", async () => {
  expect(await list(0)).toStrictEqual({ entries: names, nextPageToken: "" });
});

const nul = Buffer.from("a\0").toString("base64url");
for (const { fault, pageSize = 1, pageToken = "", field } of [
  { fault: "a size above 1000", pageSize: 1001, field: "page_size" },
  { fault: "a token that is not base64url", pageToken: "a?", field: "page_token" },
  {
    fault: "a token that is not UTF-8",
    pageToken: `${encodePageToken("")}_w`,
    field: "page_token",
  },
  {
    fault: "a token with more after it",
    pageToken: `${encodePageToken("")}=`,
    field: "page_token",
  },
  { fault: "a token with a NUL", pageToken: nul, field: "page_token" },
]) {
  test(`${fault} is an invalid request`, async () => {
    await expect(list(pageSize, pageToken)).rejects.toThrow(invalid(field));
  });
}

test("a cursor of time and id is read as it was written", () => {
  const cursor = { at: new Date("2026-03-01T12:00:00.123Z"), id: "req_1" };
  expect(parseTimeCursor(encodeTimeCursor(cursor))).toStrictEqual(cursor);
  for (const text of ["", "req_1", "yesterday req_1", "+012026-01-01T00:00:00.000Z req_1"])
    expect(() => parseTimeCursor(text)).toThrow(ApiError);
});

test("a token continues the question that it was made of, and no other", () => {
  const question = ["acc_1", ["key_1", "key_2"], 5n, new Date(0)];
  const token = encodePageToken("req_1", question);
  expect(Buffer.from(token, "base64url")).toHaveLength(12 + "req_1".length);
  expect(parsePageToken(token, [...question])).toBe("req_1");
  const others = [["acc_2", ...question.slice(1)], ["acc_1", ["key_1,key_2"], 5n, new Date(0)], []];
  for (const other of others)
    expect(() => parsePageToken(token, other)).toThrow(invalid("page_token"));
  const unbound = encodePageToken("req_1");
  expect(() => parsePageToken(unbound, question)).toThrow(invalid("page_token"));
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
  const range = { from: at("2016-11-22T12:00:00Z"), to: at("2026-11-22T12:00:00Z") };
  expect(readTimeRange(range, now)).toStrictEqual({
    from: new Date("2016-11-22T12:00:00Z"),
    to: now,
  });
  // Clocks differ by seconds; an end may lie anywhere ahead.
  readTimeRange({ from: at("2026-11-22T12:05:00Z") }, now);
  readTimeRange({ from: at("0001-01-01T00:00:00Z"), to: at("0001-01-01T00:00:00Z") }, now);
  readTimeRange({ to: at("9999-12-31T23:59:59Z") }, now);
  readTimeRange({ from: at("2026-11-01T00:00:00Z"), to: at("2026-12-01T00:00:00Z") }, now);
});

for (const { fault, field, ...range } of [
  {
    fault: "goes backwards",
    from: at("2026-11-02T00:00:00Z"),
    to: at("2026-11-01T00:00:00Z"),
    field: "to",
  },
  { fault: "begins in the future", from: at("2026-11-22T12:05:00.001Z"), field: "from" },
  {
    fault: "is longer than ten years",
    from: at("2016-11-22T11:59:59Z"),
    to: at("2026-11-22T12:00:00Z"),
    field: "from",
  },
  { fault: "began more than ten years ago", from: at("2016-11-22T11:59:59Z"), field: "from" },
  { fault: "ends after the year 9999", to: at("+010000-01-01T00:00:00Z"), field: "to" },
  { fault: "ends long after the year 9999", to: seconds(2n ** 60n), field: "to" },
  { fault: "begins before the year 1", from: at("0000-12-31T23:59:59Z"), field: "from" },
  { fault: "ends before the year 1", to: at("0000-12-31T23:59:59Z"), field: "to" },
]) {
  test(`a range that ${fault} is an invalid request`, () => {
    expect(() => readTimeRange(range, now)).toThrow(invalid(field));
  });
}
