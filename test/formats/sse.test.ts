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
    name: "an event without a name is kept",
    text: "data: 1\n\n",
    events: [{ event: "", data: "1" }],
  },
  { name: "an event without data is none", text: "event: a\n\n", events: [] },
  {
    name: "the name of an event without data does not pass to the next",
    text: "event: a\n\ndata: 1\n\n",
    events: [{ event: "", data: "1" }],
  },
  {
    name: "several data lines are one text",
    text: "data: 1\ndata:\ndata: 2\n\n",
    events: [{ event: "", data: "1\n\n2" }],
  },
  {
    name: "only one blank after the colon is dropped",
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
    name: "a last event without its blank line counts",
    text: "data: 1\n\ndata: 2\n",
    events: [
      { event: "", data: "1" },
      { event: "", data: "2" },
    ],
  },
  {
    name: "a last line without its end counts",
    text: "data: [DONE]",
    events: [{ event: "", data: "[DONE]" }],
  },
  {
    name: "separators of Unicode do not end lines",
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

test("any split of the bytes gives the same events", () => {
  const line = fc.constantFrom(
    "data: é",
    "data: 😀漢字",
    "event: x",
    "event:",
    ": comment",
    "",
    "",
    "data",
    "data:",
    "id: 1",
    "\uFEFFdata: 1",
  );
  const lineEnd = fc.constantFrom("\n", "\r", "\r\n");
  fc.assert(
    fc.property(
      fc.array(fc.tuple(line, lineEnd), { maxLength: 30 }),
      fc.array(fc.nat(), { maxLength: 20 }),
      (lines, cuts) => {
        const bytes = Buffer.from(lines.flat().join(""));
        const places = [0, ...cuts.map((cut) => cut % (bytes.length + 1)), bytes.length].sort(
          (a, b) => a - b,
        );
        const chunks = places.slice(1).map((place, index) => bytes.subarray(places[index], place));
        expect(parse(...chunks)).toEqual(parse(bytes));
      },
    ),
  );
});

test.each([
  [
    "one endless line",
    (): string[] => ["data: ", ...Array(sseEventMax / 65_536 + 1).fill("x".repeat(65_536))],
  ],
  [
    "endless data lines",
    (): string[] => Array(sseEventMax / 65_536 + 1).fill(`data: ${"x".repeat(65_536)}\n`),
  ],
])("%s is refused before it fills the memory", (_, chunks) => {
  expect(() => parse(...chunks())).toThrow(expect.objectContaining({ reason: "upstream_error" }));
  expect(() => parse(...chunks())).toThrow(ApiError);
});
