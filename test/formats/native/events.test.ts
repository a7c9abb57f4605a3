// Answers of a native provider, decoded and encoded for a native client.

import type { JsonObject } from "@bufbuild/protobuf";
import fc from "fast-check";
import { expect, test } from "vitest";
import type { Event } from "../../../gen/gateway/inference/v1/event_pb.ts";
import { isObject } from "../../../src/formats/json.ts";
import {
  createEventDecoder,
  createEventEncoder,
  decodeAnswer,
  encodeAnswer,
} from "../../../src/formats/native/native.ts";
import { createSseParser } from "../../../src/formats/sse.ts";
import { canonical } from "../../support/canonical-json.ts";
import { anyAnswer, streamOf } from "../../support/samples/native-answers.ts";

const context = { model: "model-opus-4.6", estimatedInputTokens: 77 };

function decode(...chunks: Uint8Array[]): Event[] {
  const decoder = createEventDecoder();
  return [...chunks.flatMap((chunk) => decoder.push(chunk)), ...decoder.end()];
}

/** The events of a stream as a client parses them. Each has one data line, and its type as name. */
function read(stream: string): JsonObject[] {
  const parser = createSseParser();
  return [...parser.push(Buffer.from(stream)), ...parser.end()].map(({ event, data }) => {
    expect(data).not.toMatch(/[\r\n\u0085\u2028\u2029]/);
    const value = JSON.parse(data);
    expect(value.type).toBe(event);
    return value;
  });
}

function relay(...chunks: Uint8Array[]): JsonObject[] {
  const encoder = createEventEncoder(context);
  return read(encoder.encode(decode(...chunks)) + encoder.end());
}

/**
 * The events that a client must receive for a provider's events: with the catalogue's name of the
 * model, and with the numbers that clients need.
 */
function ruled(event: JsonObject): JsonObject {
  if (event.type !== "message_start" || !isObject(event.message)) return event;
  return { ...event, message: { ...event.message, model: context.model } };
}

const list = (events: JsonObject[]): string[] => events.map(canonical);

test("a provider's stream arrives unchanged, except for the name of the model", () => {
  fc.assert(
    fc.property(anyAnswer, ({ events }) => {
      expect(list(relay(streamOf(events)))).toEqual(list(events.map(ruled)));
    }),
    { numRuns: 500 },
  );
});

test("any split of the bytes and any line end give the same events", () => {
  fc.assert(
    fc.property(
      anyAnswer,
      fc.array(fc.nat(), { maxLength: 12 }),
      fc.constantFrom("\n", "\r\n", "\r"),
      ({ events }, cuts, lineEnd) => {
        const bytes = streamOf(events, lineEnd);
        const places = [0, ...cuts.map((cut) => cut % bytes.length), bytes.length].sort(
          (a, b) => a - b,
        );
        const chunks = places.slice(1).map((place, index) => bytes.subarray(places[index], place));
        expect(decode(...chunks)).toEqual(decode(streamOf(events)));
      },
    ),
    { numRuns: 300 },
  );
});

test("a stream that is cut at any byte gives the same text", () => {
  const text = "a😀漢字é\u2028\n\ndata: x\n\nevent: error";
  const bytes = streamOf([
    {
      type: "message_start",
      message: { id: "msg_1", usage: { input_tokens: 1, output_tokens: 0 } },
    },
    { type: "content_block_start", index: 0, content_block: { type: "text", text: "" } },
    { type: "content_block_delta", index: 0, delta: { type: "text_delta", text } },
    { type: "content_block_stop", index: 0 },
    {
      type: "message_delta",
      delta: { stop_reason: "end_turn", stop_sequence: null },
      usage: { output_tokens: 1 },
    },
    { type: "message_stop" },
  ]);
  const whole = relay(bytes);
  for (let cut = 0; cut <= bytes.length; cut++) {
    expect(relay(bytes.subarray(0, cut), bytes.subarray(cut))).toEqual(whole);
  }
  expect(encodeAnswer(decode(bytes), context).content).toEqual([{ type: "text", text }]);
});

test("the deltas of a stream add up to the plain answer", () => {
  fc.assert(
    fc.property(anyAnswer, ({ events, plain }) => {
      const nulls = {
        stop_details: null,
        container: null,
        diagnostics: null,
        context_management: null,
      };
      const expected = { ...nulls, ...plain, model: context.model };
      const first = events.find((event) => event.type === "message_start");
      const { type, message, ...beside } = first ?? {};
      expect(canonical(encodeAnswer(decode(streamOf(events)), context))).toBe(
        canonical({ ...expected, ...beside }),
      );
      expect(canonical(encodeAnswer(decodeAnswer(plain), context))).toBe(canonical(expected));
    }),
    { numRuns: 500 },
  );
});

test("a plain answer streams as empty blocks and deltas that add up to it", () => {
  fc.assert(
    fc.property(anyAnswer, ({ plain }) => {
      const encoder = createEventEncoder(context);
      const streamed = read(encoder.encode(decodeAnswer(plain)) + encoder.end());
      expect(streamed.filter((event) => event.type === "message_delta").length).toBe(1);
      const again = encodeAnswer(decode(streamOf(streamed)), context);
      expect(canonical(again)).toBe(canonical(encodeAnswer(decodeAnswer(plain), context)));
    }),
    { numRuns: 500 },
  );
});
