import { type Timestamp, timestampFromDate } from "@bufbuild/protobuf/wkt";
import { expect, test } from "vitest";
import { ApiError } from "../../src/base/errors.ts";
import {
  encodePageToken,
  encodeTimeCursor,
  parsePageToken,
  parseTimeCursor,
  readPage,
  readTimeRange,
} from "../../src/base/paging.ts";

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

test("a page size of 0 is the default", async () => {
  expect(await list(0)).toStrictEqual({ entries: names, nextPageToken: "" });
});

const nul = Buffer.from("a\0").toString("base64url");
for (const { fault, pageSize = 1, pageToken = "", field } of [
  { fault: "a size above 1000", pageSize: 1001, field: "page_size" },
  { fault: "a token that is not base64url", pageToken: "a?", field: "page_token" },
  { fault: "a token that is not UTF-8", pageToken: "_w", field: "page_token" },
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
  readTimeRange({ from: at("2026-11-22T12:01:00Z") }, now);
  readTimeRange({ from: at("2026-11-01T00:00:00Z"), to: at("2026-12-01T00:00:00Z") }, now);
});

for (const { fault, field, ...range } of [
  {
    fault: "goes backwards",
    from: at("2026-11-02T00:00:00Z"),
    to: at("2026-11-01T00:00:00Z"),
    field: "to",
  },
  { fault: "begins in the future", from: at("2026-11-22T13:00:00Z"), field: "from" },
  {
    fault: "is longer than ten years",
    from: at("2016-11-22T11:59:59Z"),
    to: at("2026-11-22T12:00:00Z"),
    field: "from",
  },
  { fault: "began more than ten years ago", from: at("2016-11-22T11:59:59Z"), field: "from" },
  { fault: "ends after the year 9999", to: seconds(2n ** 60n), field: "to" },
  { fault: "begins before the year 1", from: seconds(-(2n ** 60n)), field: "from" },
]) {
  test(`a range that ${fault} is an invalid request`, () => {
    expect(() => readTimeRange(range, now)).toThrow(invalid(field));
  });
}
