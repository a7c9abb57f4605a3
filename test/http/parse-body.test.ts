// Request bodies above 1 MiB are parsed in worker threads.

import fc from "fast-check";
import { expect, test } from "vitest";
import { jsonItemsMax, parseRequest } from "../../src/formats/json.ts";
import { parseBody, parsedAtOnceMax } from "../../src/http/parse-body.ts";

const padding = " ".repeat(parsedAtOnceMax);
/** A body that is large enough for a worker. */
const largeBody = (json: string) => Buffer.from(`${json}${padding}`);

async function resultOf(parse: () => unknown): Promise<unknown> {
  try {
    return { value: await parse() };
  } catch (error) {
    return { error, facts: Object(error).facts };
  }
}

test("a large body has the same value or error as a small one", async () => {
  const bytes = fc.oneof(
    fc.json().map((text) => Buffer.from(text)),
    fc.json().map((text) => Buffer.from(text.slice(0, -1))),
    fc
      .constantFrom('{"__proto__":{"a":1}}', '["\\ud800"]', "1e999")
      .map((text) => Buffer.from(text)),
    fc.uint8Array({ maxLength: 20 }).map((raw) => Buffer.from(raw)),
  );
  await fc.assert(
    fc.asyncProperty(bytes, async (body) => {
      const large = Buffer.concat([body, Buffer.from(padding)]);
      const expected = await resultOf(() => parseRequest(large));
      expect(await resultOf(() => parseBody(large))).toEqual(expected);
    }),
    { numRuns: 30 },
  );
});

test("a large body with too many items is an error with its limit", async () => {
  const body = largeBody(JSON.stringify(Array(jsonItemsMax + 1).fill(1)));
  await expect(parseBody(body)).rejects.toMatchObject({
    reason: "request_too_large",
    facts: { limit: { name: "body_items", limit: BigInt(jsonItemsMax) } },
  });
});

test("the process serves others while large bodies are parsed", async () => {
  let turns = 0;
  const turn = () => {
    turns++;
    timer = setImmediate(turn);
  };
  let timer = setImmediate(turn);
  // A malformed text takes longest: its fault is searched byte by byte.
  const malformed = Buffer.from(`{"a":"${"x".repeat(16 * 1024 * 1024)}`);
  await expect(parseBody(malformed)).rejects.toMatchObject({ reason: "invalid_request" });
  clearImmediate(timer);
  // Parsed at once, it would take one turn.
  expect(turns).toBeGreaterThan(10);
});

test("a body above 64 KiB is parsed in a turn of its own", async () => {
  let turned = false;
  setImmediate(() => {
    turned = true;
  });
  await parseBody(Buffer.from(`[${" ".repeat(64 * 1024)}]`));
  expect(turned).toBe(true);
});

test("many large bodies at once are all parsed, each to its own value", async () => {
  const bodies = Array.from({ length: 12 }, (_, index) => largeBody(`[${index}]`));
  const values = await Promise.all(bodies.map((body) => parseBody(body)));
  expect(values.map(({ value }) => value)).toEqual(bodies.map((_, index) => [index]));
});

test("a body in shared memory leaves the bytes beside it alone", async () => {
  const shared = Buffer.from(new ArrayBuffer(2 * parsedAtOnceMax));
  shared.fill(" ").write("[1]", 8);
  const { value } = await parseBody(shared.subarray(8, 8 + parsedAtOnceMax + 1));
  expect([value, shared.length, shared.toString("utf8", 8, 11)]).toEqual([
    [1],
    2 * parsedAtOnceMax,
    "[1]",
  ]);
});
