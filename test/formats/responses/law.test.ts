// The law of the Responses format: a provider of this format receives what its client sent, and
// the client what the provider answered. Bodies are in the form in which the gateway writes them;
// ids of items are the gateway's own.

import { fromBinary, type JsonObject, type JsonValue, toBinary } from "@bufbuild/protobuf";
import fc from "fast-check";
import { expect, test } from "vitest";
import { GenerateRequestSchema } from "../../../gen/gateway/inference/v1/inference_pb.ts";
import { markSignature } from "../../../src/formats/codec.ts";
import { isObject } from "../../../src/formats/json.ts";
import {
  createEventDecoder,
  createEventEncoder,
  decodeAnswer,
  decodeRequest,
  encodeAnswer,
  encodeRequest,
  readWishes,
} from "../../../src/formats/responses/responses.ts";
import { canonical } from "../../support/canonical-json.ts";
import { readEvents } from "../../support/gateway-with-provider.ts";
import { sseEvent } from "../../support/provider-answers.ts";

const target = { model: "provider-name", stream: true };
const sealedInclude = "reasoning.encrypted_content";
/** The client holds what this seals; no key is needed to see the law. */
const open = (sealed: string) => sealed;

const words = fc
  .string({ unit: "grapheme", minLength: 1, maxLength: 12 })
  .filter((text) => text.trim() !== "" && text.isWellFormed());
const name = fc.stringMatching(/^[a-z]{1,10}$/);
const json: fc.Arbitrary<JsonObject> = fc.dictionary(
  name,
  fc.oneof(fc.integer(), words, fc.boolean(), fc.constant(null)),
  { maxKeys: 3 },
);
const optional = <T>(value: fc.Arbitrary<T>) => fc.option(value, { nil: undefined });
/** An object without its undefined members. */
const compact = (members: Record<string, JsonValue | undefined>): JsonObject =>
  Object.fromEntries(
    Object.entries(members).flatMap(([key, value]) => (value === undefined ? [] : [[key, value]])),
  );

const inputPart: fc.Arbitrary<JsonObject> = fc.oneof(
  words.map((text) => ({ type: "input_text", text })),
  fc
    .record({
      image_url: fc.constantFrom("https://example.com/a.png", "data:image/png;base64,iVBORw0="),
      detail: optional(fc.constantFrom("low", "high", "auto")),
    })
    .map((members) => compact({ type: "input_image", ...members })),
  fc.constant({
    type: "input_file",
    filename: "a.pdf",
    file_data: "data:application/pdf;base64,JVBERi0=",
  }),
  fc.constant({ type: "input_file", file_url: "https://example.com/a.pdf" }),
);
const userMessage = fc
  .array(inputPart, { minLength: 1, maxLength: 3 })
  .map((content) => ({ type: "message", role: "user", content }));
const instruction = fc
  .tuple(fc.constantFrom("system", "developer"), fc.array(words, { minLength: 1, maxLength: 2 }))
  .map(([role, texts]) => ({
    type: "message",
    role,
    content: texts.map((text) => ({ type: "input_text", text })),
  }));
const phase = optional(fc.constantFrom("commentary", "final_answer"));
const assistantMessage = fc
  .tuple(fc.array(words, { minLength: 1, maxLength: 2 }), phase)
  .map(([texts, given]) =>
    compact({
      type: "message",
      role: "assistant",
      content: texts.map((text) => ({ type: "output_text", text })),
      phase: given,
    }),
  );

/** A reasoning item as the provider knows it. The client has it sealed. */
const reasoning = fc.tuple(fc.oneof(words, fc.constant("")), words).map(([text, encrypted]) => ({
  type: "reasoning",
  summary: text === "" ? [] : [{ type: "summary_text", text }],
  encrypted_content: encrypted,
}));

function sealed(item: JsonObject): JsonObject {
  if (item.type !== "reasoning") return item;
  const [first] = Array.isArray(item.summary) ? item.summary : [];
  const thinking = isObject(first) ? String(first.text) : "";
  const signature = markSignature(String(item.encrypted_content));
  return { ...item, encrypted_content: JSON.stringify({ thinking, signature }) };
}

const output = fc.oneof(words, fc.array(inputPart, { minLength: 1, maxLength: 2 }));
const callId = fc.stringMatching(/^call_[a-z0-9]{4}$/);
const namespace = optional(
  fc.constantFrom("crm", "mcp__files", "a namespace that is long".repeat(4)),
);
const callAndOutput = fc.oneof(
  fc.tuple(callId, name, namespace, json, output).map(([call_id, called, group, given, result]) => [
    compact({
      type: "function_call",
      call_id,
      name: called,
      namespace: group,
      arguments: JSON.stringify(given),
    }),
    { type: "function_call_output", call_id, output: result },
  ]),
  fc.tuple(callId, name, words, output).map(([call_id, called, given, result]) => [
    { type: "custom_tool_call", call_id, name: called, input: given },
    { type: "custom_tool_call_output", call_id, output: result },
  ]),
);
const assistantStep = fc
  .tuple(
    fc.array(reasoning, { maxLength: 2 }),
    fc.array(assistantMessage, { maxLength: 2 }),
    optional(callAndOutput),
  )
  .map(([thoughts, messages, call]) => [...thoughts, ...messages, ...(call ?? [])]);
const input = fc
  .tuple(
    fc.array(instruction, { maxLength: 2 }),
    userMessage,
    fc.array(
      fc.oneof(
        assistantStep,
        fc.array(userMessage, { maxLength: 1 }),
        instruction.map((one) => [one]),
      ),
      { maxLength: 5 },
    ),
    userMessage,
  )
  .map(([head, first, middle, last]): JsonObject[] => [...head, first, ...middle.flat(), last]);

const functionTool = (ownName: fc.Arbitrary<string>) =>
  fc
    .record({ name: ownName, description: optional(words), strict: optional(fc.boolean()) })
    .map((members) =>
      compact({ type: "function", parameters: { type: "object", properties: {} }, ...members }),
    );
const customTool = fc
  .record({
    name: name.map((text) => `c_${text}`),
    description: optional(words),
    format: optional(
      fc.constantFrom<JsonObject>(
        { type: "text" },
        { type: "grammar", syntax: "lark", definition: "start: /.+/" },
      ),
    ),
  })
  .map((members) => compact({ type: "custom", ...members }));
const namespaceTool = fc
  .tuple(
    name.map((text) => `n_${text}`),
    words,
    fc.uniqueArray(functionTool(name), { minLength: 1, maxLength: 3, selector: (one) => one.name }),
  )
  .map(([own, description, tools]) => ({ type: "namespace", name: own, description, tools }));
const tools = fc.uniqueArray(fc.oneof(functionTool(name), customTool, namespaceTool), {
  minLength: 1,
  maxLength: 4,
  selector: (tool: JsonObject) => tool.name,
});
const toolMembers = tools.chain((list) =>
  fc
    .record({
      tool_choice: fc.constantFrom<JsonValue>("auto", "required", ...list.flatMap(choicesOf)),
      parallel_tool_calls: optional(fc.constant(false)),
    })
    .map((members) => compact({ tools: list, ...members })),
);

function choicesOf({ type = "", name: own = "", tools: inner }: JsonObject): JsonObject[] {
  if (!Array.isArray(inner)) return [{ type, name: own }];
  return inner
    .filter(isObject)
    .map((tool) => ({ type: "function", name: tool.name ?? "", namespace: own }));
}

const format = fc.constantFrom<JsonObject | undefined>(
  undefined,
  { type: "json_object" },
  { type: "json_schema", name: "place", schema: { type: "object" }, strict: true },
  { type: "json_schema", name: "place", schema: { type: "object" }, description: "A place." },
);
const body: fc.Arbitrary<JsonObject> = fc
  .tuple(
    fc.record({
      input,
      instructions: optional(words),
      max_output_tokens: optional(fc.integer({ min: 1, max: 64_000 })),
      sampling: fc.constantFrom<JsonObject>({}, { temperature: 0.5 }, { top_p: 0.25 }),
      effort: optional(fc.constantFrom("none", "minimal", "low", "medium", "high", "xhigh")),
      summary: optional(fc.constantFrom("auto", "concise", "detailed")),
      format,
      verbosity: optional(fc.constantFrom("low", "high")),
      isSealed: fc.boolean(),
      metadata: optional(json),
      prompt_cache_key: optional(words),
      safety_identifier: optional(words),
      user: optional(words),
    }),
    optional(toolMembers),
  )
  .map(([{ sampling, effort, summary, format, verbosity, isSealed, ...members }, withTools]) =>
    compact({
      model: "m",
      ...members,
      ...sampling,
      ...withTools,
      reasoning: orUndefined({ effort, summary }),
      text: orUndefined({ format, verbosity }),
      include: isSealed ? [sealedInclude] : undefined,
    }),
  );

function orUndefined(members: Record<string, JsonValue | undefined>): JsonObject | undefined {
  const given = compact(members);
  return Object.keys(given).length > 0 ? given : undefined;
}

/** The body as its client sends it: with sealed reasoning. */
function sent(given: JsonObject): JsonObject {
  const items = Array.isArray(given.input) ? given.input.filter(isObject) : [];
  return { ...given, input: items.map(sealed) };
}

/** The body that the provider must receive: what the gateway owns differs. */
function expected(given: JsonObject): JsonObject {
  const { effort } = isObject(given.reasoning) ? given.reasoning : {};
  const thinks = effort !== undefined && effort !== "none";
  return {
    ...given,
    ...target,
    store: false,
    ...(thinks && { include: [sealedInclude] }),
  };
}

test("a provider receives the body that the client sent", () => {
  fc.assert(
    fc.property(body, (given) => {
      const before = JSON.stringify(sent(given));
      const received = encodeRequest(decodeRequest(JSON.parse(before), open), target);
      expect(canonical(received)).toBe(canonical(expected(given)));
    }),
    { numRuns: 500 },
  );
});

test("the law holds after protobuf serialisation too", () => {
  fc.assert(
    fc.property(body, (given) => {
      const request = decodeRequest(sent(given), open);
      const read = fromBinary(GenerateRequestSchema, toBinary(GenerateRequestSchema, request));
      expect(canonical(encodeRequest(read, target))).toBe(canonical(expected(given)));
    }),
    { numRuns: 100 },
  );
});

const clientBody: JsonObject = {
  model: "m",
  input: "Hello",
  reasoning: { summary: "auto" },
  include: [sealedInclude],
  tools: [
    { type: "custom", name: "patch" },
    {
      type: "namespace",
      name: "crm",
      description: "",
      tools: [{ type: "function", name: "find" }],
    },
    { type: "function", name: "list" },
  ],
};
const context = {
  model: "m",
  estimatedInputTokens: 0,
  createdAtMs: 0,
  wishes: readWishes(clientBody),
  seal: (text: string) => Buffer.from(text).toString("base64"),
};
const outputItem: fc.Arbitrary<JsonObject> = fc.oneof(
  assistantMessage,
  reasoning,
  fc
    .record({ call_id: callId, given: json, isGrouped: fc.boolean() })
    .map(({ call_id, given, isGrouped }) =>
      compact({
        type: "function_call",
        call_id,
        name: isGrouped ? "find" : "list",
        namespace: isGrouped ? "crm" : undefined,
        arguments: JSON.stringify(given),
      }),
    ),
  fc
    .record({ call_id: callId, input: words })
    .map((members) => ({ type: "custom_tool_call", name: "patch", ...members })),
);
/** Neighbouring messages of one phase are one message here, so there are none. */
const outputItems = fc
  .uniqueArray(outputItem, {
    minLength: 1,
    maxLength: 5,
    selector: ({ call_id, ...item }) => call_id ?? JSON.stringify(item),
  })
  .map((items) =>
    items.filter((item, at) => {
      const before = items[at - 1];
      return item.type !== "message" || before?.type !== "message";
    }),
  );

function response(items: readonly JsonObject[]): JsonObject {
  const usage = {
    input_tokens: 30,
    input_tokens_details: { cached_tokens: 10, cache_write_tokens: 5 },
    output_tokens: 9,
    output_tokens_details: { reasoning_tokens: 4 },
    total_tokens: 39,
  };
  const head = { object: "response", status: "completed", error: null, incomplete_details: null };
  return { id: "resp_1", model: "p", ...head, output: [...items], usage };
}

/** What the client must get of an item: its own form, without what only the gateway decides. */
function plain(item: JsonValue): JsonObject {
  const { id, status, ...members } = isObject(item) ? item : {};
  if (members.type === "reasoning" && typeof members.encrypted_content === "string") {
    const opened = Buffer.from(members.encrypted_content, "base64").toString();
    return { ...members, encrypted_content: opened };
  }
  const content = Array.isArray(members.content) ? members.content.filter(isObject) : undefined;
  return content
    ? { ...members, content: content.map(({ type = "", text = "" }) => ({ type, text })) }
    : members;
}

/** The stream of these items, with their texts cut in two. */
function streamOf(items: readonly JsonObject[]): string[] {
  const cut = (text: JsonValue | undefined) => {
    const given = [...String(text)];
    const at = Math.ceil(given.length / 2);
    return [given.slice(0, at).join(""), given.slice(at).join("")];
  };
  const body = response(items);
  const middle = items.flatMap((item, output_index) => {
    const deltas = (type: string, text: JsonValue | undefined, more: JsonObject = {}) =>
      cut(text).map((delta) =>
        sseEvent(`response.${type}.delta`, { output_index, ...more, delta }),
      );
    const parts = Array.isArray(item.content) ? item.content.filter(isObject) : [];
    const summary = Array.isArray(item.summary) ? item.summary.filter(isObject) : [];
    const start = compact({
      ...item,
      content: item.content && [],
      summary: item.summary && [],
      arguments: item.arguments && "",
      input: item.input && "",
      encrypted_content: undefined,
    });
    return [
      sseEvent("response.output_item.added", { output_index, item: start }),
      ...parts.flatMap(({ text }, content_index) => [
        sseEvent("response.content_part.added", { output_index, content_index }),
        ...deltas("output_text", text, { content_index }),
      ]),
      ...summary.flatMap(({ text }) => deltas("reasoning_summary_text", text)),
      ...(item.arguments ? deltas("function_call_arguments", item.arguments) : []),
      ...(item.input ? deltas("custom_tool_call_input", item.input) : []),
      sseEvent("response.output_item.done", { output_index, item }),
    ];
  });
  return [
    sseEvent("response.created", { response: { ...body, status: "in_progress", output: [] } }),
    ...middle,
    sseEvent("response.completed", { response: body }),
  ];
}

test("a client receives the response that the provider gave, plain and streamed in any split", () => {
  fc.assert(
    fc.property(outputItems, fc.integer({ min: 1, max: 200 }), (items, size) => {
      const body = response(items);
      const whole = encodeAnswer(decodeAnswer(body), context);
      expect(Array.isArray(whole.output) && whole.output.map(plain)).toEqual(
        items.map(sealed).map(plainSealed),
      );
      expect(whole.usage).toEqual(body.usage);

      const decoder = createEventDecoder();
      const encoder = createEventEncoder(context);
      const bytes = Buffer.from(streamOf(items).join(""));
      let text = "";
      for (let at = 0; at < bytes.length; at += size)
        text += encoder.encode(decoder.push(bytes.subarray(at, at + size)));
      text += encoder.encode(decoder.end()) + encoder.end();
      const last = readEvents(text).at(-1);
      expect(last?.type).toBe("response.completed");
      const streamed = isObject(last?.response) ? last.response : {};
      expect(Array.isArray(streamed.output) && streamed.output.map(plain)).toEqual(
        items.map(sealed).map(plainSealed),
      );
      expect(streamed.usage).toEqual(body.usage);
    }),
    { numRuns: 200 },
  );
});

/** As `plain`, of an item whose content is readable. */
function plainSealed(item: JsonObject): JsonObject {
  const { id, status, ...members } = item;
  return members;
}
