import assert from "node:assert/strict";
import { test } from "vitest";
import { ApiError } from "../../src/base/errors.ts";
import { encodeTimeCursor, parseTimeCursor, readPage } from "../../src/base/paging.ts";

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
  assert.deepEqual(first.entries, ["a", "b"]);
  const second = await list(2, first.nextPageToken);
  assert.deepEqual(second, { entries: ["c", "d"], nextPageToken: "" });
});

test("a page size of 0 is the default", async () => {
  assert.deepEqual(await list(0), { entries: names, nextPageToken: "" });
});

const nul = Buffer.from("a\0").toString("base64url");
for (const { fault, pageSize = 1, pageToken = "", field } of [
  { fault: "a size above 1000", pageSize: 1001, field: "page_size" },
  { fault: "a token that is not base64url", pageToken: "a?", field: "page_token" },
  { fault: "a token that is not UTF-8", pageToken: "_w", field: "page_token" },
  { fault: "a token with a NUL", pageToken: nul, field: "page_token" },
]) {
  test(`${fault} is an invalid request`, async () => {
    await assert.rejects(list(pageSize, pageToken), (error) => {
      assert.ok(error instanceof ApiError);
      assert.deepEqual([error.reason, error.facts.field], ["invalid_request", field]);
      return true;
    });
  });
}

test("a cursor of time and id is read as it was written", () => {
  const cursor = { at: new Date("2026-03-01T12:00:00.123Z"), id: "req_1" };
  assert.deepEqual(parseTimeCursor(encodeTimeCursor(cursor)), cursor);
  for (const text of ["", "req_1", "yesterday req_1", "+012026-01-01T00:00:00.000Z req_1"])
    assert.throws(() => parseTimeCursor(text), ApiError);
});
