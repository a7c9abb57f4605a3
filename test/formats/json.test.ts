import fc from "fast-check";
import { expect, test } from "vitest";
import { parseJson, parseJsonText, stringifyJson } from "../../src/formats/json.ts";
import { findFault } from "../../src/formats/json-fault.ts";

const nested = (levels: number): string => "[".repeat(levels) + "]".repeat(levels);

const faults: { name: string; body: string | Uint8Array; message: string }[] = [
  { name: "an empty body", body: "", message: "unexpected end at byte 0" },
  { name: "a cut object", body: '{"a":1', message: "unexpected end at byte 6" },
  { name: "a missing value", body: '{"a":}', message: "unexpected character at byte 5" },
  { name: "a bare word", body: '{"a": secret}', message: "unexpected character at byte 6" },
  { name: "a trailing comma", body: "[1,]", message: "unexpected character at byte 3" },
  {
    name: "text after the value",
    body: "{} {}",
    message: "unexpected text after the value at byte 3",
  },
  {
    name: "a control character in a string",
    body: '"a\u0001"',
    message: "unexpected character at byte 2",
  },
  { name: "an unknown escape", body: '"\\x41"', message: "unexpected character at byte 2" },
  { name: "a leading zero", body: "[01]", message: "unexpected character at byte 2" },
  { name: "a misspelt literal", body: "[nul]", message: "unexpected character at byte 4" },
  { name: "a missing colon", body: '{"a" 1}', message: "unexpected character at byte 5" },
  { name: "a lone high surrogate", body: '["\\ud83d"]', message: "a lone surrogate at byte 2" },
  { name: "a lone low surrogate", body: '["\\uDE00"]', message: "a lone surrogate at byte 2" },
  {
    name: "a lone surrogate in a name",
    body: '{"\\ud83d":1}',
    message: "a lone surrogate at byte 2",
  },
  {
    name: "two surrogates in the wrong order",
    body: '["\\ude00\\ud83d"]',
    message: "a lone surrogate at byte 2",
  },
  {
    name: "a number that is too large",
    body: '{"a":-1e999}',
    message: "a number that is too large at byte 5",
  },
  { name: "201 levels", body: nested(201), message: "more than 200 levels of nesting at byte 200" },
  {
    name: "10,000 levels",
    body: nested(10_000),
    message: "more than 200 levels of nesting at byte 200",
  },
  {
    name: "invalid UTF-8",
    body: Uint8Array.of(0x22, 0x61, 0xff, 0x22),
    message: "invalid UTF-8 at byte 2",
  },
];
for (const { name, body, message } of faults) {
  test(`${name} is rejected with its byte offset and without its content`, () => {
    expect(() => parseJson(Buffer.from(body))).toThrow(
      expect.objectContaining({
        reason: "invalid_request",
        message: `The body is not acceptable JSON: ${message}.`,
      }),
    );
  });
}

test("200 levels, a byte order mark, paired surrogates, NUL and __proto__ are accepted", () => {
  expect(parseJson(Buffer.from(nested(200)))).toEqual(JSON.parse(nested(200)));
  expect(parseJson(Buffer.from("\uFEFF{}"))).toEqual({});
  expect(parseJson(Buffer.from('["\\ud83d\\ude00\\u0000"]'))).toEqual(["😀\u0000"]);
  expect(Object.keys(Object(parseJson(Buffer.from('{"__proto__":{"a":1}}'))))).toEqual([
    "__proto__",
  ]);
});

test("any JSON text is parsed as JSON.parse does, and has no fault", () => {
  fc.assert(
    fc.property(fc.json(), (text) => {
      expect(parseJson(Buffer.from(text))).toEqual(JSON.parse(text));
      expect(findFault(Buffer.from(text))).toBeUndefined();
    }),
  );
});

test("a text has a fault exactly if JSON.parse rejects it", () => {
  const piece = fc.constantFrom(
    "{",
    "}",
    "[",
    "]",
    ",",
    ":",
    '"',
    "\\",
    "u00e9",
    "a",
    "1",
    "-",
    ".",
    "e+",
    "0",
    " ",
    "\n",
    "true",
    "null",
  );
  fc.assert(
    fc.property(fc.array(piece, { maxLength: 12 }), (pieces) => {
      const text = pieces.join("");
      let readable = true;
      try {
        JSON.parse(text);
      } catch {
        readable = false;
      }
      expect(findFault(Buffer.from(text)) === undefined).toBe(readable);
    }),
    { numRuns: 3000 },
  );
});

test("a JSON text inside a value is parsed; an unacceptable one gives undefined", () => {
  expect(parseJsonText('{"a":[1]}')).toEqual({ a: [1] });
  expect([parseJsonText('{"a":'), parseJsonText(nested(201)), parseJsonText('"\\ud83d"')]).toEqual([
    undefined,
    undefined,
    undefined,
  ]);
});

test("serialised text has no line separator of Unicode and keeps the value", () => {
  const value = { "a\u2028": ["b\u2029c", "d\u0085e", "\n😀"] };
  const text = stringifyJson(value);
  expect(text).not.toMatch(/[\u2028\u2029\u0085\n]/);
  expect(JSON.parse(text)).toEqual(value);
});
