import { createParser } from "eventsource-parser";
import fc from "fast-check";
import { expect, test } from "vitest";
import { ApiError } from "../../src/base/errors.ts";
import { createSseParser, type SseEvent, sseEventMax } from "../../src/formats/sse.ts";

function parse(...chunks: (string | Uint8Array)[]): SseEvent[] {
  const parser = createSseParser();
  const events = chunks.flatMap((chunk) =>
    parser.push(typeof chunk === "string" ? Buffer.from(chunk) : chunk),
  );
  return [...events, ...parser.end()];
}

const cases: { name: string; text: string; events: SseEvent[] }[] = [
  {
    name: "an event has a name and data",
    text: "event: a\ndata: 1\n\n",
    events: [{ event: "a", data: "1" }],
  },
  {
    name: "an event without a name has an empty one",
    text: "data: 1\n\n",
    events: [{ event: "", data: "1" }],
  },
  { name: "an event without data is not reported", text: "event: a\n\n", events: [] },
  {
    name: "an event without data does not name the next event",
    text: "event: a\n\ndata: 1\n\n",
    events: [{ event: "", data: "1" }],
  },
  {
    name: "several data lines are joined by line feeds",
    text: "data: 1\ndata:\ndata: 2\n\n",
    events: [{ event: "", data: "1\n\n2" }],
  },
  {
    name: "only one space after the colon is dropped",
    text: "data:  1\n\ndata:2\n\n",
    events: [
      { event: "", data: " 1" },
      { event: "", data: "2" },
    ],
  },
  {
    name: "comments and unknown fields are skipped",
    text: ": hi\nid: 7\nretry: 5\nnonsense\ndata: 1\n\n: ping\n\n",
    events: [{ event: "", data: "1" }],
  },
  {
    name: "a byte order mark is skipped",
    text: "\uFEFFdata: 1\n\n",
    events: [{ event: "", data: "1" }],
  },
  {
    name: "carriage returns alone end lines",
    text: "event: a\rdata: 1\r\rdata: 2\r\r",
    events: [
      { event: "a", data: "1" },
      { event: "", data: "2" },
    ],
  },
  {
    name: "line ends may be mixed",
    text: "event: a\r\ndata: 1\r\n\ndata: 2\n\rdata: 3\r\n\r\n",
    events: [
      { event: "a", data: "1" },
      { event: "", data: "2" },
      { event: "", data: "3" },
    ],
  },
  {
    name: "the last event needs no blank line",
    text: "data: 1\n\ndata: 2\n",
    events: [
      { event: "", data: "1" },
      { event: "", data: "2" },
    ],
  },
  {
    name: "the last line needs no line end",
    text: "data: [DONE]",
    events: [{ event: "", data: "[DONE]" }],
  },
  {
    name: "line separators of Unicode do not end lines",
    text: "data: a\u2028b\u2029c\u0085d\n\n",
    events: [{ event: "", data: "a\u2028b\u2029c\u0085d" }],
  },
];
for (const { name, text, events } of cases) {
  test(name, () => {
    expect(parse(text)).toEqual(events);
  });
  test(`${name}, byte by byte`, () => {
    expect(parse(...Array.from(Buffer.from(text), (byte) => Uint8Array.of(byte)))).toEqual(events);
  });
}

/** Streams of usual, odd and random lines, with every kind of line end. */
const streams = fc
  .array(
    fc.tuple(
      fc.oneof(
        fc.constantFrom(
          "data: é",
          "data: 😀漢字",
          "data:  two blanks",
          "event: x",
          "event:",
          "event",
          ": comment",
          "",
          "",
          "data",
          "data:",
          "database: 1",
          " data: 1",
          "id: 1",
          "retry: 5",
          "\uFEFFdata: 1",
        ),
        fc.string({ unit: "binary" }).map((text) => `data: ${text.replace(/[\r\n]/g, "")}`),
        fc.string().map((text) => text.replace(/[\r\n]/g, "")),
      ),
      fc.constantFrom("\n", "\r", "\r\n"),
    ),
    { maxLength: 30 },
  )
  .map((lines) => Buffer.from(lines.flat().join("")));

test("any split of the bytes gives the same events", () => {
  fc.assert(
    fc.property(streams, fc.array(fc.nat(), { maxLength: 20 }), (bytes, cuts) => {
      const offsets = [0, ...cuts.map((cut) => cut % (bytes.length + 1)), bytes.length].sort(
        (a, b) => a - b,
      );
      const chunks = offsets.slice(1).map((end, index) => bytes.subarray(offsets[index], end));
      expect(parse(...chunks)).toEqual(parse(bytes));
    }),
  );
});

/** The events that the package `eventsource-parser` reads, after a blank line at the end. */
function parseByPackage(bytes: Uint8Array): SseEvent[] {
  const events: SseEvent[] = [];
  const parser = createParser({
    onEvent: ({ event, data }) => events.push({ event: event ?? "", data }),
  });
  // The decoder drops the byte order mark, which the package does not find in a decoded text.
  parser.feed(`${new TextDecoder().decode(bytes)}\n\n`);
  return events;
}

test("the events are those that eventsource-parser reads", () => {
  fc.assert(
    fc.property(streams, (bytes) => {
      expect(parse(bytes)).toEqual(parseByPackage(bytes));
    }),
    { numRuns: 1_000 },
  );
});

test.each([
  [
    "an endless line",
    (): string[] => ["data: ", ...Array(sseEventMax / 65_536 + 1).fill("x".repeat(65_536))],
  ],
  [
    "endless data lines",
    (): string[] => Array(sseEventMax / 65_536 + 1).fill(`data: ${"x".repeat(65_536)}\n`),
  ],
])("%s throws upstream_error before it fills the memory", (_, chunks) => {
  expect(() => parse(...chunks())).toThrow(expect.objectContaining({ reason: "upstream_error" }));
  expect(() => parse(...chunks())).toThrow(ApiError);
});
