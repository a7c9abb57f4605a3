// Generated answers of a provider that speaks the native format, as the list of events it streams.

import type { JsonObject, JsonValue } from "@bufbuild/protobuf";
import fc from "fast-check";
import { anyObject, anyValue } from "./native-bodies.ts";

const text = fc.oneof(
  fc.string({ unit: "grapheme", maxLength: 10 }),
  fc.constantFrom(
    "😀",
    "漢字 é",
    "a\u2028b\u2029c\u0085d",
    "\n\ndata: x\n\nevent: error\n\n",
    "data:",
    "\r\n",
  ),
);
const count = fc.nat({ max: 100_000 });

/** Members that no schema names, or none. */
const extra = fc.oneof(
  { weight: 4, arbitrary: fc.constant<JsonObject>({}) },
  { weight: 1, arbitrary: anyValue.map((value) => ({ newest: value })) },
);

export const anyUsage: fc.Arbitrary<JsonObject> = fc
  .tuple(
    fc.record({
      input_tokens: fc.integer({ min: 1, max: 100_000 }),
      cache_creation_input_tokens: fc.oneof(count, fc.constant(null)),
      cache_read_input_tokens: fc.oneof(count, fc.constant(null)),
      output_tokens: count,
    }),
    fc.record(
      {
        cache_creation: fc.oneof(
          fc.record({ ephemeral_5m_input_tokens: count, ephemeral_1h_input_tokens: count }),
          fc.constant(null),
        ),
        output_tokens_details: fc.oneof(
          fc.record({ thinking_tokens: count }),
          fc.record({ thinking_tokens: count, newest: count }),
          fc.constant(null),
        ),
        service_tier: fc.constantFrom("standard", null),
        server_tool_use: fc.record({ web_search_requests: count }),
      },
      { requiredKeys: [] },
    ),
    extra,
  )
  .map((parts) => Object.assign({}, ...parts));

type Block = { start: JsonObject; deltas: JsonObject[]; whole: JsonObject };

const jsonPieces = (value: JsonObject): string[] => JSON.stringify(value).match(/.{1,5}/gsu) ?? [];

const anyBlock = fc.oneof<fc.Arbitrary<Block>[]>(
  fc.tuple(fc.array(text, { maxLength: 4 }), extra).map(([texts, more]) => ({
    start: { type: "text", text: "", ...more },
    deltas: texts.map((one) => ({ type: "text_delta", text: one })),
    whole: { type: "text", text: texts.join(""), ...more },
  })),
  fc.tuple(text, anyObject).map(([one, citation]) => ({
    start: { type: "text", text: "", citations: [] },
    deltas: [
      { type: "text_delta", text: one },
      { type: "citations_delta", citation },
    ],
    whole: { type: "text", text: one, citations: [citation] },
  })),
  fc
    .tuple(fc.array(text, { maxLength: 3 }), fc.base64String(), extra)
    .map(([texts, signature, more]) => ({
      start: { type: "thinking", thinking: "", signature: "" },
      deltas: [
        ...texts.map((one) => ({ type: "thinking_delta", thinking: one, ...more })),
        { type: "signature_delta", signature },
      ],
      whole: { type: "thinking", thinking: texts.join(""), signature },
    })),
  fc.base64String().map((data) => ({
    start: { type: "redacted_thinking", data },
    deltas: [],
    whole: { type: "redacted_thinking", data },
  })),
  fc
    .tuple(fc.constantFrom("tool_use", "server_tool_use"), anyObject, extra)
    .map(([type, input, more]) => ({
      start: { type, id: "toolu_1", name: "f", input: {}, ...more },
      deltas: jsonPieces(input).map((partial_json) => ({ type: "input_json_delta", partial_json })),
      whole: { type, id: "toolu_1", name: "f", input, ...more },
    })),
  fc.constant({
    start: { type: "tool_use", id: "toolu_2", name: "without_arguments", input: {} },
    deltas: [],
    whole: { type: "tool_use", id: "toolu_2", name: "without_arguments", input: {} },
  }),
  fc.tuple(text, fc.base64String()).map(([content, encrypted_content]) => ({
    start: { type: "compaction", content: null },
    deltas: [{ type: "compaction_delta", content: `${content}.`, encrypted_content }],
    whole: { type: "compaction", content: `${content}.`, encrypted_content },
  })),
  anyObject.map((members) => {
    const block = { ...members, type: "web_search_tool_result", content: [{ a: 1 }] };
    return { start: block, deltas: [], whole: block };
  }),
);

/** One answer, streamed and plain. */
export type Answer = { events: JsonObject[]; plain: JsonObject };

/**
 * Answers as the vendor gives them: every member that clients rely on is there, further ones may be
 * anywhere.
 */
export const anyAnswer: fc.Arbitrary<Answer> = fc
  .record({
    blocks: fc.array(anyBlock, { maxLength: 4 }),
    usage: anyUsage,
    first: count,
    stopReason: fc.constantFrom(
      "end_turn",
      "max_tokens",
      "tool_use",
      "stop_sequence",
      "refusal",
      "newest_reason",
    ),
    stopSequence: fc.constantFrom(null, "STOP"),
    ending: fc.record(
      { stop_details: fc.constantFrom(null, { type: "refusal" }), container: fc.constant(null) },
      { requiredKeys: [] },
    ),
    beside: extra,
    atStart: extra,
    interlude: fc.array(
      fc.constantFrom<JsonObject>({ type: "ping" }, { type: "newest_event", a: [1] }),
      { maxLength: 3 },
    ),
  })
  .map(({ blocks, usage, first, stopReason, stopSequence, ending, beside, atStart, interlude }) => {
    const { output_tokens_details, server_tool_use, service_tier, ...input } = usage;
    const shared = {
      id: "msg_provider",
      type: "message",
      role: "assistant",
      model: "provider-model",
    };
    const message = { ...shared, content: [], stop_reason: null, stop_sequence: null, ...atStart };
    const [before, after, between] = interlude;
    const events: (JsonObject | undefined)[] = [
      before,
      {
        type: "message_start",
        message: { ...message, usage: { ...input, output_tokens: first } },
        ...beside,
      },
      after,
      ...blocks.flatMap(({ start, deltas }, index): (JsonObject | undefined)[] => [
        { type: "content_block_start", index, content_block: start, ...beside },
        ...deltas.map((delta) => ({ type: "content_block_delta", index, delta, ...beside })),
        { type: "content_block_stop", index, ...beside },
        between,
      ]),
      {
        type: "message_delta",
        delta: { stop_reason: stopReason, stop_sequence: stopSequence, ...ending },
        usage,
        ...beside,
      },
      { type: "message_stop" },
    ];
    const plain = {
      ...shared,
      content: blocks.map(({ whole }): JsonValue => whole),
      stop_reason: stopReason,
      stop_sequence: stopSequence,
      ...atStart,
      ...ending,
      usage,
    };
    return { events: events.filter((event) => event !== undefined), plain };
  });

/** The bytes of a stream of `events`. */
export function streamOf(events: readonly JsonObject[], lineEnd = "\n"): Buffer {
  return Buffer.from(
    events
      .map(
        (event) =>
          `event: ${event.type}${lineEnd}data: ${JSON.stringify(event)}${lineEnd}${lineEnd}`,
      )
      .join(""),
  );
}
