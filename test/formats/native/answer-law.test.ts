// The law of the native format, of answers: a native client receives exactly what a provider of
// this format answered, but for the closed list.

import { fromBinary, type JsonObject, toBinary } from "@bufbuild/protobuf";
import fc from "fast-check";
import { expect, test } from "vitest";
import { Format } from "../../../gen/gateway/inference/v1/content_pb.ts";
import { type Event, EventSchema } from "../../../gen/gateway/inference/v1/event_pb.ts";
import { isObject } from "../../../src/formats/json.ts";
import {
  createEventDecoder,
  createEventEncoder,
  decodeAnswer,
  encodeAnswer,
} from "../../../src/formats/native/native.ts";
import { canonical } from "../../support/canonical-json.ts";
import { readEvents } from "../../support/gateway-with-provider.ts";
import { sseEvent } from "../../support/provider-answers.ts";
import { closedNativeAnswer } from "../../support/samples/closed-list.ts";
import { compact, cutAt, grown, optional, reads, words } from "../../support/samples/grow.ts";
import { anyObject } from "../../support/samples/native-bodies.ts";

const context = { model: "m", estimatedInputTokens: 7 };
const source = { writer: { format: Format.NATIVE, dialect: "anthropic", model: "p" } };

const citation = fc.constant({ type: "char_location", cited_text: "a", document_index: 0 });
const block: fc.Arbitrary<JsonObject> = fc.oneof(
  words.map((text) => ({ type: "text", text })),
  fc.tuple(words, citation).map(([text, one]) => ({ type: "text", text, citations: [one] })),
  fc.record({ thinking: words, signature: words }).map((one) => ({ type: "thinking", ...one })),
  words.map((data) => ({ type: "redacted_thinking", data })),
  fc
    .record({ id: fc.stringMatching(/^toolu_\w{4}$/), name: words, input: anyObject })
    .map((one) => ({ type: "tool_use", ...one })),
  fc
    .record({ id: words, name: fc.constant("web_search"), input: anyObject })
    .map((one) => ({ type: "server_tool_use", ...one })),
  fc.constant<JsonObject>({ type: "web_search_tool_result", tool_use_id: "s", content: [] }),
);
const usage = {
  input_tokens: 5,
  output_tokens: 3,
  cache_read_input_tokens: 0,
  cache_creation_input_tokens: 0,
};
const head = { id: "msg_1", type: "message", role: "assistant", model: "p" };
const ending = fc.record({
  stop_reason: fc.constantFrom("end_turn", "tool_use", "refusal", "pause_turn", "new_reason"),
  stop_sequence: fc.constantFrom(null, "END"),
  stop_details: fc.constantFrom<undefined | null | JsonObject>(undefined, null, { type: "x" }),
});
const answer = fc
  .tuple(fc.array(block, { maxLength: 4 }), ending, optional(anyObject))
  .map(([content, end, container]) => compact({ ...head, content, ...end, container, usage }));

const plain = (message: JsonObject) => canonical(closedNativeAnswer(message));

test("a client receives the plain answer that the provider gave", () => {
  fc.assert(
    fc.property(grown(answer), (message) => {
      const events = decodeAnswer(message, source);
      expect(plain(encodeAnswer(events, context))).toBe(plain(message));
      expect(plain(encodeAnswer(events.map(travelled), context))).toBe(plain(message));
    }),
    { numRuns: 500 },
  );
});

function travelled(event: Event): Event {
  return fromBinary(EventSchema, toBinary(EventSchema, event));
}

const stream = fc
  .record({
    blocks: fc.array(block, { maxLength: 4 }),
    end: ending,
    cuts: fc.array(fc.nat(30), { maxLength: 3 }),
    hasPing: fc.boolean(),
  })
  .map(({ blocks, end, cuts, hasPing }): JsonObject => {
    const { stop_reason, stop_sequence, ...more } = end;
    const message = { ...head, content: [], stop_reason: null, stop_sequence: null, usage };
    const events: JsonObject[] = [
      { type: "message_start", message },
      ...(hasPing ? [{ type: "ping" }] : []),
      ...blocks.flatMap((one, index) => eventsOf(one, index, cuts)),
      {
        type: "message_delta",
        delta: compact({ stop_reason, stop_sequence, ...more }),
        usage: { output_tokens: 3 },
      },
    ];
    return { events };
  });

/** The events of one block. */
function eventsOf(one: JsonObject, index: number, cuts: readonly number[]): JsonObject[] {
  const { text, thinking, signature, input, citations, ...rest } = one;
  const start = compact({
    ...rest,
    text: text && "",
    thinking: thinking && "",
    signature: signature && "",
    input: input && {},
  });
  const delta = (own: JsonObject) => ({ type: "content_block_delta", index, delta: own });
  const pieces = (value: unknown) => (typeof value === "string" ? cutAt(value, cuts) : []);
  const json = isObject(input) && Object.keys(input).length > 0 ? JSON.stringify(input) : "";
  return [
    { type: "content_block_start", index, content_block: start },
    ...pieces(text).map((piece) => delta({ type: "text_delta", text: piece })),
    ...(Array.isArray(citations) ? citations : []).map((citation) =>
      delta({ type: "citations_delta", citation }),
    ),
    ...pieces(thinking).map((piece) => delta({ type: "thinking_delta", thinking: piece })),
    ...(signature === undefined ? [] : [delta({ type: "signature_delta", signature })]),
    ...pieces(json).map((piece) => delta({ type: "input_json_delta", partial_json: piece })),
    { type: "content_block_stop", index },
  ];
}

/** An event as a client gets it, without what is on the closed list. */
function shown(event: JsonObject): string {
  const { usage: _, gateway, ...members } = event;
  return canonical(
    isObject(members.message)
      ? { ...members, message: closedNativeAnswer(members.message) }
      : members,
  );
}

test("a client receives every event of a stream in its order, in any split of its bytes", () => {
  fc.assert(
    fc.property(
      grown(stream),
      fc.array(fc.nat(5000), { maxLength: 8 }),
      fc.boolean(),
      (grownEvents, places, hasRuns) => {
        const events = [
          ...(Array.isArray(grownEvents.events) ? grownEvents.events : [])
            .filter(isObject)
            .map(withEmptyInput),
          { type: "message_stop" },
        ];
        const bytes = events
          .map(({ type, ...members }) => sseEvent(String(type), members))
          .join("");
        const decoder = createEventDecoder(hasRuns, source);
        const encoder = createEventEncoder(context);
        let text = "";
        for (const read of reads(bytes, places)) text += encoder.encode(decoder.push(read));
        text += encoder.encode(decoder.end());
        expect(readEvents(text).map(shown)).toEqual(events.map(withPlainPing).map(shown));
      },
    ),
    { numRuns: 500 },
  );
});

/** The input of a call comes in deltas. */
function withEmptyInput(event: JsonObject): JsonObject {
  const { content_block: started } = event;
  if (!isObject(started) || !isObject(started.input)) return event;
  return { ...event, content_block: { ...started, input: {} } };
}

/** A ping has no content. */
function withPlainPing(event: JsonObject): JsonObject {
  return event.type === "ping" ? { type: "ping" } : event;
}
