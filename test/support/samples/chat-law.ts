// Generated requests and answers of the chat format, as clients and providers of this format write
// them.

import type { JsonObject, JsonValue } from "@bufbuild/protobuf";
import fc from "fast-check";
import { anyCallId, anyToolName } from "../arbitraries.ts";
import { compact, cutAt, optional, words } from "./grow.ts";
import { anyObject, anyValue } from "./native-bodies.ts";

const mark = fc.constantFrom<JsonObject>({ type: "ephemeral" }, { type: "ephemeral", ttl: "1h" });
const part: fc.Arbitrary<JsonObject> = fc.oneof(
  fc
    .record({ text: words, mark: optional(mark) })
    .map(({ text, mark: own }) => compact({ type: "text", text, cache_control: own })),
  fc
    .record({
      url: fc.constantFrom(
        "https://example.com/a.png",
        "data:image/png;base64,iVBORw0=",
        "DATA:image/JPG;base64,/9j=",
      ),
      detail: optional(fc.constantFrom("low", "high")),
    })
    .map((image) => ({ type: "image_url", image_url: compact(image) })),
  fc.constantFrom<JsonObject>(
    { type: "file", file: { filename: "a.pdf", file_data: "data:application/pdf;base64,JVBE" } },
    { type: "file", file: { filename: "A.PDF", file_data: "JVBE" } },
    { type: "input_audio", input_audio: { data: "AAAA", format: "wav" } },
    { type: "video_url", video_url: { url: "https://example.com/a.mp4" } },
  ),
);
const textPart = words.map((text) => ({ type: "text", text }));
const texts = fc.oneof(words, fc.array(textPart, { maxLength: 3 }));
const instruction = fc.record({
  role: fc.constantFrom("system", "developer"),
  content: texts,
});
const user = fc
  .record({
    content: fc.oneof(words, fc.constant(""), fc.array(part, { maxLength: 3 })),
    name: optional(words),
  })
  .map((members) => compact({ role: "user", ...members }));

const call = fc
  .record({
    id: anyCallId,
    name: anyToolName,
    text: fc.oneof(
      anyObject.map((value) => JSON.stringify(value)),
      fc.constantFrom("", "{", '{ "a" : 1 }', "[1]", "not JSON"),
    ),
    extra: optional(fc.constant({ google: { thought_signature: "c2ln" } })),
  })
  .map(({ id, name: called, text, extra }) =>
    compact({
      id,
      type: "function",
      function: { name: called, arguments: text },
      extra_content: extra,
    }),
  );
const detail = fc.constantFrom<JsonObject>(
  {
    type: "reasoning.text",
    text: "hm",
    signature: "c2ln",
    format: "anthropic-claude-v1",
    index: 0,
  },
  { type: "reasoning.text", text: "hm" },
  { type: "reasoning.summary", summary: "hm", index: 1 },
  { type: "reasoning.encrypted", data: "b3BhcXVl", id: "rs_1" },
  { type: "reasoning.tomorrow", data: [1] },
);
const assistant = fc
  .record({
    content: fc.oneof(
      words,
      fc.constantFrom("", null, undefined),
      fc.array(
        fc.oneof(
          textPart,
          fc.constantFrom<JsonObject>(
            { type: "refusal", refusal: "No." },
            { type: "thinking", thinking: [{ type: "text", text: "hm" }], closed: true },
          ),
        ),
        { maxLength: 3 },
      ),
    ),
    tool_calls: fc.oneof(
      fc.constantFrom(undefined, null),
      fc.uniqueArray(call, { maxLength: 3, selector: (one) => one.id }),
    ),
    reasoning_content: optional(words),
    reasoning: optional(words),
    reasoning_details: optional(fc.array(detail, { maxLength: 3 })),
    refusal: fc.constantFrom(undefined, null, "No."),
    audio: fc.constantFrom(undefined, null, { id: "audio_1" }),
    annotations: optional(fc.constant<JsonValue>([])),
    function_call: fc.constantFrom(undefined, null, { name: "f", arguments: "{}" }),
    name: optional(words),
  })
  .map((members) => compact({ role: "assistant", ...members }));
const result = fc
  .record({ tool_call_id: anyCallId, content: fc.oneof(texts, fc.constantFrom("", null)) })
  .map((members) => ({ role: "tool", ...members }));
const messages = fc
  .tuple(fc.array(fc.oneof(instruction, user, assistant, result), { maxLength: 6 }), words)
  .map(([some, last]): JsonObject[] => [...some, { role: "user", content: last }]);

const tool = anyToolName.chain((own) =>
  fc
    .record({
      description: optional(words),
      parameters: fc.constantFrom<JsonObject | undefined>(
        undefined,
        {},
        { type: "object" },
        { type: "object", properties: { b: {}, a: {} }, required: ["b"] },
      ),
      strict: optional(fc.boolean()),
    })
    .map((members) => ({ type: "function", function: compact({ name: own, ...members }) })),
);
const tools = fc.uniqueArray(tool, {
  minLength: 1,
  maxLength: 3,
  selector: (one) => String(one.function.name),
});
const toolMembers = tools.chain((list) =>
  fc
    .record({
      tool_choice: fc.constantFrom<JsonValue | undefined>(
        ...["auto", "required", "none", undefined, null],
        { type: "function", function: { name: String(list[0]?.function.name) } },
        { type: "allowed_tools", allowed_tools: { mode: "auto", tools: list } },
      ),
      parallel_tool_calls: optional(fc.boolean()),
    })
    .map((members) => compact({ tools: list, ...members })),
);
const sampling = fc.record(
  {
    temperature: fc.constantFrom(0, 0.5, 1.7, null),
    top_p: fc.constantFrom(0, 0.25, 1),
    top_k: fc.nat(100),
    min_p: fc.constant(0.1),
    frequency_penalty: fc.constantFrom(0, 1.5),
    presence_penalty: fc.constantFrom(-2, 0),
    seed: fc.nat(),
    stop: fc.constantFrom<JsonValue>("END", ["a", " "], null, []),
    logprobs: fc.boolean(),
    top_logprobs: fc.nat(5),
    logit_bias: fc.constant({ "50256": -100 }),
    reasoning_effort: fc.constantFrom("none", "minimal", "low", "xhigh", "heroic", null),
    thinking: fc.constantFrom<JsonValue>({ type: "enabled" }, { type: "disabled" }, "on"),
    response_format: fc.constantFrom<JsonValue>(
      { type: "text" },
      { type: "json_object" },
      { type: "json_schema", json_schema: { name: "n", strict: true, schema: { type: "object" } } },
    ),
    verbosity: fc.constant("low"),
    modalities: fc.constantFrom<JsonValue>(["text"], ["text", "image"]),
    moderation: fc.constant({ model: "omni" }),
    prediction: fc.constant({ type: "content", content: "a" }),
    chat_template_kwargs: anyObject,
    metadata: fc.constantFrom<JsonObject>({}, { a: "b" }, { a: "b", "tag.team": "x" }),
    user: words,
    safety_identifier: words,
    prompt_cache_key: words,
    prompt_cache_retention: fc.constant("24h"),
    service_tier: fc.constant("default"),
    store: fc.boolean(),
    n: fc.constantFrom(1, null),
    stream_options: fc.constantFrom<JsonValue>(
      null,
      {},
      { include_usage: true },
      { include_obfuscation: false },
    ),
    max_tokens: fc.integer({ min: 1, max: 1000 }),
    max_completion_tokens: fc.constantFrom(1, 2000, null),
  },
  { requiredKeys: [] },
);

/** A body that a chat client may send to a provider of this format. */
export const chatBody: fc.Arbitrary<JsonObject> = fc
  .tuple(messages, sampling, optional(toolMembers))
  .map(([list, some, withTools]) => compact({ model: "m", messages: list, ...some, ...withTools }));

const answerCall = fc
  .record({
    id: fc.stringMatching(/^call_[a-z0-9]{4}$/),
    name: anyToolName,
    input: anyObject,
    extra: optional(anyValue),
  })
  .map(({ id, name: called, input, extra }) =>
    compact({
      id,
      type: "function",
      function: { name: called, arguments: JSON.stringify(input) },
      extra_content: extra,
    }),
  );
const annotation = fc.constant({
  type: "url_citation",
  url_citation: { start_index: 0, end_index: 1, title: "T", url: "https://example.com" },
});

/** The message of an answer, with everything that providers are known to put into one. */
const answerMessage: fc.Arbitrary<JsonObject> = fc
  .record({
    content: fc.oneof(words, fc.constantFrom("", null)),
    reasoning: fc.constantFrom("none", "reasoning_content", "reasoning", "both"),
    thought: words,
    details: optional(fc.array(detail, { minLength: 1, maxLength: 2 })),
    refusal: fc.constantFrom(undefined, null),
    images: optional(
      fc.constant<JsonValue>([
        { type: "image_url", image_url: { url: "data:image/png;base64,AAAA" } },
      ]),
    ),
    annotations: optional(fc.array(annotation, { minLength: 1, maxLength: 2 })),
    encrypted_content: optional(words),
    calls: fc.uniqueArray(answerCall, { maxLength: 2, selector: (one) => one.id }),
  })
  .map(({ reasoning, thought, details, calls, ...members }) =>
    compact({
      role: "assistant",
      ...members,
      reasoning_details: details,
      ...(reasoning !== "none" && {
        ...(reasoning !== "reasoning" && { reasoning_content: thought }),
        ...(reasoning !== "reasoning_content" && { reasoning: thought }),
      }),
      tool_calls: calls.length === 0 ? undefined : calls,
    }),
  );

const logprobs = fc.constantFrom<JsonValue | undefined>(undefined, null, {
  content: [{ token: "a", logprob: -0.5, bytes: [97], top_logprobs: [] }],
  refusal: null,
});
const reason = fc.constantFrom("stop", "length", "tool_calls", "content_filter", "STOP", "eos");
const usage = { prompt_tokens: 20, completion_tokens: 8, total_tokens: 28 };

/** A plain answer of a provider. */
export const chatAnswer: fc.Arbitrary<JsonObject> = fc
  .record({
    message: answerMessage,
    logprobs,
    finish_reason: reason,
    native_finish_reason: optional(words),
    content_filter_results: optional(anyObject),
    system_fingerprint: optional(words),
    service_tier: optional(fc.constantFrom("default", null)),
    provider: optional(words),
    x_groq: optional(fc.constant({ id: "r" })),
  })
  .map(({ message, finish_reason, logprobs: probabilities, ...members }) => {
    const { native_finish_reason, content_filter_results, ...top } = members;
    const choice = { message, finish_reason, native_finish_reason, content_filter_results };
    return compact({
      id: "cmpl-1",
      object: "chat.completion",
      created: 1,
      model: "p",
      choices: [compact({ index: 0, logprobs: probabilities, ...choice })],
      usage,
      ...top,
    });
  });

const delta = fc.oneof(
  { weight: 4, arbitrary: words.map((content): JsonObject => ({ content })) },
  words.map((content): JsonObject => ({ content, reasoning_content: null })),
  words.map((text): JsonObject => ({ reasoning_content: text })),
  words.map((text): JsonObject => ({ reasoning: text, reasoning_content: text })),
  words.map(
    (text): JsonObject => ({
      reasoning: text,
      reasoning_details: [{ type: "reasoning.text", text, index: 0 }],
    }),
  ),
  fc.constantFrom<JsonObject>(
    { reasoning_details: [{ type: "reasoning.text", signature: "c2ln", index: 0 }] },
    { reasoning_details: [{ type: "reasoning.encrypted", data: "b3BhcXVl", index: 1 }] },
    { content: [{ type: "thinking", thinking: [{ type: "text", text: "hm" }] }] },
    { images: [{ type: "image_url", image_url: { url: "data:image/png;base64,AAAA" } }] },
    { extra_content: { google: { thought_signature: "c2ln" } } },
    { encrypted_content: "b3BhcXVl" },
    { content: "" },
    {},
  ),
  annotation.map((one): JsonObject => ({ annotations: [one] })),
);

/** The chunks of one answer: deltas of all kinds, then calls in fragments, then the end. */
export const chatStream: fc.Arbitrary<JsonObject[]> = fc
  .record({
    deltas: fc.array(delta, { maxLength: 8 }),
    calls: fc.uniqueArray(answerCall, { maxLength: 2, selector: (one) => one.id }),
    cuts: fc.array(fc.nat(30), { maxLength: 3 }),
    // Most chunks have nothing but their delta.
    choice: fc.oneof(
      { weight: 2, arbitrary: fc.constant({}) },
      fc.record({ logprobs, content_filter_results: optional(anyObject) }),
    ),
    reason,
    endsWithText: fc.boolean(),
    top: fc.oneof(
      { weight: 2, arbitrary: fc.constant({}) },
      fc.record(
        { system_fingerprint: words, service_tier: fc.constant("default"), provider: words },
        { requiredKeys: [] },
      ),
    ),
  })
  .map(({ deltas, calls, cuts, choice, reason: last, endsWithText, top }) => {
    const chunk = (own: JsonObject, finish_reason: string | null = null): JsonObject => ({
      id: "cmpl-1",
      object: "chat.completion.chunk",
      created: 1,
      model: "p",
      choices: [compact({ index: 0, delta: own, ...choice, finish_reason })],
      ...top,
    });
    const fragments = calls.flatMap(({ function: called, ...members }, index) => {
      const { name: own, arguments: text } = Object(called);
      return [
        { tool_calls: [{ index, ...members, function: { name: own, arguments: "" } }] },
        ...cutAt(String(text), cuts).map((piece) => ({
          tool_calls: [{ index, function: { arguments: piece } }],
        })),
      ];
    });
    return [
      chunk({ role: "assistant", content: "" }),
      ...deltas.map((one) => chunk(one)),
      ...fragments.map((one) => chunk(one)),
      endsWithText ? chunk({ content: "." }, last) : chunk({}, last),
      { id: "cmpl-1", choices: [], usage, ...top },
    ];
  });
