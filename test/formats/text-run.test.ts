// Runs of text deltas. The law: any stream, in any split of its bytes, gives the same bytes and the
// same usage with runs as without.

import fc from "fast-check";
import { expect, test } from "vitest";
import type { Event } from "../../gen/gateway/inference/v1/event_pb.ts";
import * as chat from "../../src/formats/chat/chat.ts";
import type { EventEncoder } from "../../src/formats/codec.ts";
import * as native from "../../src/formats/native/native.ts";
import * as responses from "../../src/formats/responses/responses.ts";
import { runOf } from "../../src/formats/text-run.ts";
import { Metered } from "../support/metered.ts";

const codecs = { native, chat };
type Name = keyof typeof codecs;
const names = ["native", "chat"] as const;
/** A provider of the Responses format has no runs, but its clients have. */
const targets = [...names, "responses"] as const;
type Target = (typeof targets)[number];
const wishes = responses.readWishes({ model: "m", input: "Hello" });

const rules = { countedInput: 5, contextTokens: 200_000 };

function encoderOf(name: Target): EventEncoder {
  const context = { model: "m", estimatedInputTokens: 7, includeUsage: true, createdAtMs: 0 };
  if (name === "responses") return responses.createEventEncoder({ ...context, wishes });
  return codecs[name].createEventEncoder(context);
}

/** The reads of a stream whose bytes are cut at these places. */
function cut(text: string, places: readonly number[]): Buffer[] {
  const bytes = Buffer.from(text);
  const at = [0, ...places.map((place) => place % (bytes.length + 1)), bytes.length];
  at.sort((one, other) => one - other);
  return at.slice(1).map((to, index) => bytes.subarray(at[index], to));
}

function decode(name: Name, reads: readonly Buffer[], acceptsRuns: boolean): Event[][] {
  const decoder = codecs[name].createEventDecoder(acceptsRuns);
  return [...reads.map((read) => decoder.push(read)), decoder.end()];
}

/** The bytes that a client gets, without the random ids of this gateway, and the metered usage. */
function relay(reads: readonly Event[][], to: Target, grantedOutput = 1_000) {
  const encoder = encoderOf(to);
  const answer = new Metered(rules, grantedOutput);
  let bytes = "";
  for (const received of reads) {
    bytes += encoder.encode(answer.read(received));
    if (answer.isCut) break;
  }
  bytes += encoder.end();
  return {
    bytes: bytes.replaceAll(
      /"(id|item_id|call_id)":"(chatcmpl-|msg_|toolu_|resp_|rs_|fc_)\w+"/g,
      '"id":""',
    ),
    usage: answer.billedAt("left"),
    total: answer.billedAt("complete"),
    hasContent: answer.counted.began,
  };
}

function hasRun(reads: readonly Event[][]): boolean {
  return reads
    .flat()
    .some(({ kind }) => kind.case === "blockDelta" && runOf(kind.value) !== undefined);
}

// Texts with everything that JSON can escape, characters of one to four bytes, line separators, and
// words that also occur elsewhere in an event.
const piece = fc.oneof(
  { weight: 6, arbitrary: fc.string({ unit: "grapheme-ascii", minLength: 1, maxLength: 6 }) },
  { weight: 2, arbitrary: fc.string({ unit: "binary", maxLength: 4 }) },
  fc.constantFrom(
    "\n",
    '"',
    "\\",
    "\u2028",
    "\u2029",
    "\u0085",
    "é",
    "漢",
    "😀",
    "\u0000",
    "\t",
    "/",
  ),
  fc.constantFrom("text", "text_delta", "content", "the probe for a text", "", "\\n\n", "}]}"),
);
/** The ways in which a provider may write the JSON string of a text. */
const spelled = fc
  .tuple(piece, fc.constantFrom("short", "short", "short", "long", "slash"))
  .map(([text, way]) => {
    const json = JSON.stringify(text);
    if (way === "slash") return json.replaceAll("/", "\\/");
    if (way === "short") return json;
    // Surrogates become two escapes.
    const units = Array.from({ length: text.length }, (_, at) => text.charCodeAt(at));
    return `"${units.map((unit) => `\\u${unit.toString(16).padStart(4, "0")}`).join("")}"`;
  });

const ways = {
  native: [
    (text: string, at: number) =>
      `event: content_block_delta\ndata: {"type":"content_block_delta","index":${at},"delta":{"type":"text_delta","text":${text}}}\n\n`,
    (text: string, at: number) =>
      `data: {"delta": {"text": ${text}, "type": "text_delta"}, "index": ${at}, "type": "content_block_delta"}\n\n`,
    (text: string, at: number) =>
      `event: content_block_delta\ndata: {"type":"content_block_delta","index":${at},"delta":{"type":"text_delta","text":${text}}    }\n\n`,
    (text: string, at: number) =>
      `event: content_block_delta\r\ndata: {"type":"content_block_delta","index":${at},"delta":{"type":"text_delta","text":${text}}}\r\n\r\n`,
    (text: string, at: number) =>
      `event: content_block_delta\ndata: {"type":"content_block_delta","index":${at},"x":${text},"delta":{"type":"text_delta","text":${text}}}\n\n`,
    (text: string, at: number) =>
      `event: content_block_delta\ndata: {"type":"content_block_delta","index":${at},"delta":{"type":"text_delta","text":"x","text":${text}}}\n\n`,
    (text: string, at: number) =>
      `event: ping\ndata: {"type":"content_block_delta","index":${at},"delta":{"type":"text_delta","text":${text}}}\n\n`,
    (text: string, at: number) =>
      `event: content_block_delta\ndata: {"type":"content_block_delta","index":${at},\ndata: "delta":{"type":"text_delta","text":${text}}}\n\n`,
    (text: string, at: number) =>
      `data: {"type":"content_block_delta","index":${at},"delta":{"type":"thinking_delta","thinking":${text}}}\n\n`,
    () => ': a comment\n\nevent: ping\ndata: {"type":"ping"}\n\n',
    () => "data: {broken\n\n",
  ],
  chat: [
    (text: string) =>
      `data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"p","choices":[{"index":0,"delta":{"content":${text}},"finish_reason":null}]}\n\n`,
    (text: string) =>
      `data: {"choices": [{"delta": {"role": "assistant", "content": ${text}}, "index": 0}], "model": "p"}\n\n`,
    (text: string) =>
      `data: {"model":"p","choices":[{"index":0,"delta":{"content":${text}}}],"usage":{"prompt_tokens":3,"completion_tokens":2}}\n\n`,
    (text: string) =>
      `data: {"model":"p","choices":[{"index":0,"delta":{"content":${text},"annotations":[{"type":"x"}]}}]}\n\n`,
    (text: string) =>
      `data: {"model":"p","choices":[{"index":1,"delta":{"content":${text}}}]}\r\n\r\n`,
    (text: string) =>
      `data: {"model":"p","choices":[{"index":0,"delta":{"reasoning_content":${text}}}]}\n\n`,
    (text: string) =>
      `event: error\ndata: {"model":"p","choices":[{"index":0,"delta":{"content":${text}}}]}\n\n`,
    (text: string) =>
      `data: {"model":"p","choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"t","function":{"name":"f","arguments":${text}}}]}}]}\n\n`,
    (text: string) =>
      `data: {"model":"p","choices":[{"index":0,"delta":{"content":${text}},"finish_reason":"length"}]}\n\n`,
    () => ": a comment\n\n",
    () => "data: [broken\n\n",
  ],
} as const satisfies Record<Name, readonly ((text: string, at: number) => string)[]>;

const opening = {
  native:
    'event: message_start\ndata: {"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant","model":"p","content":[],"usage":{"input_tokens":9,"output_tokens":1}}}\n\n',
  chat: 'data: {"model":"p","choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}\n\n',
};
const closing = {
  native:
    'event: message_delta\ndata: {"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":8}}\n\nevent: message_stop\ndata: {"type":"message_stop"}\n\n',
  chat: 'data: {"model":"p","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\ndata: {"model":"p","choices":[],"usage":{"prompt_tokens":9,"completion_tokens":8}}\n\ndata: [DONE]\n\n',
};
const start = (at: number) =>
  `event: content_block_start\ndata: {"type":"content_block_start","index":${at},"content_block":{"type":"text","text":""}}\n\n`;
const stop = (at: number) =>
  `event: content_block_stop\ndata: {"type":"content_block_stop","index":${at}}\n\n`;

/** Streams whose deltas come in groups of one form, as a provider's do, with exceptions. */
function streamOf(name: Name): fc.Arbitrary<string> {
  const group = fc
    .tuple(
      fc.oneof(
        { weight: 3, arbitrary: fc.constant(0) },
        { weight: 2, arbitrary: fc.nat(1) },
        { weight: 2, arbitrary: fc.nat(ways[name].length - 1) },
      ),
      fc.nat(2),
      fc.array(spelled, { minLength: 1, maxLength: 8 }),
    )
    .map(([way, at, texts]) => {
      const deltas = texts.map((text) => ways[name][way]?.(text, at) ?? "").join("");
      return name === "native" ? start(at) + deltas + stop(at) : deltas;
    });
  return fc
    .tuple(fc.array(group, { maxLength: 4 }), fc.boolean())
    .map(([groups, ends]) => opening[name] + groups.join("") + (ends ? closing[name] : ""));
}

for (const from of names)
  for (const to of targets)
    test(`${from} to ${to}: a stream gives the same bytes and usage with runs, in any split`, () => {
      fc.assert(
        fc.property(
          streamOf(from),
          fc.array(fc.nat(100_000), { maxLength: 6 }),
          fc.constantFrom(1_000, 1_000, 0),
          (text, places, granted) => {
            const reads = cut(text, places);
            const plain = relay(decode(from, reads, false), to, granted);
            expect(relay(decode(from, reads, true), to, granted)).toEqual(plain);
          },
        ),
        { numRuns: 1_000 },
      );
    });

for (const name of names)
  test(`${name}: a stream that is split at every byte gives the same bytes with runs`, () => {
    const texts = [
      '"a"',
      '"é"',
      '"\\n漢\\""',
      '"\\u00e9"',
      '"\\ud83d\\ude00"',
      '"😀"',
      '"b"',
      '"c"',
    ];
    const deltas = texts.flatMap((text) => [1, 0].map((way) => ways[name][way]?.(text, 0) ?? ""));
    const body = deltas.join("");
    const text = opening[name] + (name === "native" ? start(0) + body + stop(0) : body);
    const whole = text + closing[name];
    const expected = relay(decode(name, cut(whole, []), false), name);
    for (let place = 0; place <= Buffer.byteLength(whole); place++) {
      expect(relay(decode(name, cut(whole, [place]), true), name)).toEqual(expected);
    }
    const each = Array.from({ length: Buffer.byteLength(whole) }, (_, place) => place);
    expect(relay(decode(name, cut(whole, each), true), name)).toEqual(expected);
  });

for (const [name, way] of names.flatMap((one) => [0, 1].map((other) => [one, other] as const)))
  test(`${name}: ordinary deltas of form ${way} come as one run for each read`, () => {
    const deltas = Array.from({ length: 20 }, () => ways[name][way]?.('"four"', 0)).join("");
    const text = opening[name] + (name === "native" ? start(0) : "") + deltas;
    const [events = []] = decode(name, cut(text, []), true);
    expect(hasRun([events])).toBe(true);
    const deltaEvents = events.filter(({ kind }) => kind.case === "blockDelta");
    // At most one more: the first delta of an unknown form is parsed.
    expect(deltaEvents.length).toBeLessThanOrEqual(2);
    // Code that does not know runs sees the same text.
    const texts = deltaEvents.map(
      ({ kind }) => kind.case === "blockDelta" && kind.value.kind.value,
    );
    expect(texts.join("")).toBe("four".repeat(20));
  });

test("deltas with members of tomorrow keep them, among others that have none", () => {
  const delta = (more: string) =>
    'event: content_block_delta\ndata: {"type":"content_block_delta","index":0,"delta":' +
    `{"type":"text_delta","text":"four"${more}}}\n\n`;
  const [plain, later] = [delta(""), delta(',"later":1')];
  for (const deltas of [later.repeat(3), plain + later + plain, later + plain + later]) {
    const reads = cut(opening.native + start(0) + deltas + stop(0) + closing.native, []);
    const expected = relay(decode("native", reads, false), "native");
    expect(relay(decode("native", reads, true), "native")).toEqual(expected);
    expect(expected.bytes.match(/"later":1/g)).toHaveLength(deltas.split("later").length - 1);
  }
});

test("without the request of a listener, there are no runs", () => {
  for (const name of names) {
    const deltas = ways[name][0]('"four"', 0).repeat(20);
    const text = opening[name] + (name === "native" ? start(0) : "") + deltas;
    expect(hasRun(decode(name, cut(text, []), false))).toBe(false);
  }
});
