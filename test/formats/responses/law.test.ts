// The law of the Responses format: a provider of this format receives what its client sent, and the
// client what the provider answered, but for the closed list.

import { fromBinary, type JsonObject, type JsonValue, toBinary } from "@bufbuild/protobuf";
import fc from "fast-check";
import { expect, test } from "vitest";
import { Format } from "../../../gen/gateway/inference/v1/content_pb.ts";
import { type Event, EventSchema } from "../../../gen/gateway/inference/v1/event_pb.ts";
import { GenerateRequestSchema } from "../../../gen/gateway/inference/v1/inference_pb.ts";
import { isObject } from "../../../src/formats/json.ts";
import { sealPack } from "../../../src/formats/packs.ts";
import {
  createEventDecoder,
  createEventEncoder,
  decodeAnswer,
  decodeRequest,
  encodeAnswer,
  encodeRequest,
  readWishes,
} from "../../../src/formats/responses/responses.ts";
import { anyCallId } from "../../support/arbitraries.ts";
import { canonical } from "../../support/canonical-json.ts";
import { readEvents } from "../../support/gateway-with-provider.ts";
import { sseEvent } from "../../support/provider-answers.ts";
import { closedResponse, closedResponsesRequest } from "../../support/samples/closed-list.ts";
import { compact, cutAt, grown, optional, reads, words } from "../../support/samples/grow.ts";
import { readableSealing } from "../../support/sealing.ts";

const target = { model: "provider-name", stream: true };
const sealedInclude = "reasoning.encrypted_content";
const writer = { format: Format.RESPONSES, dialect: "generic", model: target.model };

const name = fc.stringMatching(/^[a-z]{1,10}$/);
const json: fc.Arbitrary<JsonObject> = fc.dictionary(
  name,
  fc.oneof(fc.integer(), words, fc.boolean(), fc.constant(null)),
  { maxKeys: 3 },
);

const inputPart: fc.Arbitrary<JsonObject> = fc.oneof(
  words.map((text) => ({ type: "input_text", text })),
  fc
    .record({
      image_url: fc.constantFrom("https://example.com/a.png", "data:image/png;base64,iVBORw0="),
      detail: optional(fc.constantFrom("low", "high", "auto")),
    })
    .map((members) => compact({ type: "input_image", ...members })),
  fc.constantFrom<JsonObject>(
    {
      type: "input_file",
      filename: "a.pdf",
      file_data: "data:application/pdf;base64,JVBERi0=",
    },
    { type: "input_file", filename: "A.PDF", file_data: "JVBERi0=" },
    { type: "input_file", file_url: "https://example.com/a.pdf" },
    { type: "input_file", filename: null, file_url: "https://example.com/a.pdf" },
    { type: "text", text: "a" },
    { type: "input_audio", input_audio: { data: "AAAA" } },
  ),
);
const userMessage = fc
  .tuple(fc.oneof(words, fc.array(inputPart, { minLength: 1, maxLength: 3 })), fc.boolean())
  .map(
    ([content, isShort]): JsonObject => ({
      ...(!isShort && { type: "message" }),
      role: "user",
      content,
    }),
  );
const instruction = fc
  .tuple(fc.constantFrom("system", "developer"), fc.array(words, { minLength: 1, maxLength: 2 }))
  .map(([role, texts]) => ({
    type: "message",
    role,
    content: texts.map((text) => ({ type: "input_text", text })),
  }));
const phase = optional(fc.constantFrom("commentary", "final_answer"));
const outputPart = fc.oneof(
  words.map((text): JsonObject => ({ type: "output_text", text })),
  words.map((text): JsonObject => ({ type: "output_text", text, annotations: [], logprobs: [] })),
  words.map((refusal): JsonObject => ({ type: "refusal", refusal })),
);
const assistantMessage = fc
  .record({
    content: fc.array(outputPart, { minLength: 1, maxLength: 2 }),
    phase,
    id: optional(fc.constant("msg_abc")),
    status: optional(fc.constant("completed")),
  })
  .map((members) => compact({ type: "message", role: "assistant", ...members }));

/** A reasoning item as the provider knows it. The client has it sealed. */
const reasoning = fc
  .record({
    texts: fc.array(words, { maxLength: 2 }),
    encrypted_content: words,
    id: optional(fc.constant("rs_abc")),
  })
  .map(({ texts, ...members }) =>
    compact({
      type: "reasoning",
      summary: texts.map((text) => ({ type: "summary_text", text })),
      ...members,
    }),
  );

/** The item with its encrypted content sealed, as the gateway seals that of this provider. */
function sealed(item: JsonObject): JsonObject {
  if (item.type !== "reasoning" || typeof item.encrypted_content !== "string") return item;
  const block = {
    $typeName: "gateway.inference.v1.Attached" as const,
    ...writer,
    list: "",
    textMembers: [],
    members: { encrypted_content: item.encrypted_content },
  };
  return { ...item, encrypted_content: sealPack({ block }, readableSealing) ?? "" };
}

const unknownItem = fc.constantFrom<JsonObject>(
  { type: "web_search_call", id: "ws_1", status: "completed", action: { type: "search" } },
  { type: "item_of_tomorrow", members: [1] },
);

const output = fc.oneof(words, fc.array(inputPart, { minLength: 1, maxLength: 2 }));
const namespace = optional(
  fc.constantFrom("crm", "mcp__files", "a namespace that is long".repeat(4)),
);
const callAndOutput = fc.oneof(
  fc
    .tuple(anyCallId, name, namespace, json, output, fc.boolean())
    .map(([call_id, called, group, given, result, isText]) => [
      compact({
        type: "function_call",
        call_id,
        name: called,
        namespace: group,
        arguments: isText ? "not JSON" : JSON.stringify(given),
      }),
      { type: "function_call_output", call_id, output: result },
    ]),
  fc.tuple(anyCallId, name, words, output).map(([call_id, called, given, result]) => [
    { type: "custom_tool_call", call_id, name: called, input: given },
    { type: "custom_tool_call_output", call_id, output: result },
  ]),
);
const assistantStep = fc
  .tuple(
    fc.array(reasoning, { maxLength: 2 }),
    fc.array(fc.oneof({ weight: 4, arbitrary: assistantMessage }, unknownItem), { maxLength: 2 }),
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
    .record({
      name: ownName,
      description: optional(words),
      strict: optional(fc.boolean()),
      parameters: fc.constantFrom<JsonObject | undefined>(
        undefined,
        {},
        { type: "object", properties: { b: {}, a: {} } },
      ),
    })
    .map((members) => compact({ type: "function", ...members }));
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
      tool_choice: fc.constantFrom<JsonValue>(
        ...["auto", "required", null],
        ...list.flatMap(choicesOf),
      ),
      parallel_tool_calls: optional(fc.boolean()),
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
const rest = fc.record(
  {
    instructions: fc.oneof(words, fc.constantFrom(null, "")),
    max_output_tokens: fc.integer({ min: 1, max: 64_000 }),
    temperature: fc.constantFrom(0.5, 1.7),
    top_p: fc.constant(0.25),
    metadata: fc.constantFrom<JsonObject>({}, { a: "b" }, { a: "b", "tag.team": "x" }),
    prompt_cache_key: words,
    prompt_cache_retention: fc.constant("24h"),
    safety_identifier: words,
    user: words,
    truncation: fc.constantFrom("auto", "disabled"),
    service_tier: fc.constant("default"),
    top_logprobs: fc.nat(5),
    max_tool_calls: fc.nat(5),
    moderation: fc.constant({ model: "omni" }),
    context_management: fc.constant<JsonValue>([{ type: "compaction", compact_threshold: 1000 }]),
    stream_options: fc.constant({ include_obfuscation: false }),
    store: fc.constant(false),
    background: fc.constant(false),
    include: fc.constantFrom<JsonValue>([], [sealedInclude], ["message.output_text.logprobs"]),
    reasoning: fc
      .record(
        {
          effort: fc.constantFrom("none", "minimal", "low", "high", "xhigh", "max"),
          summary: fc.constantFrom("auto", "concise"),
        },
        { requiredKeys: [] },
      )
      .map(compact),
    text: fc
      .record({ format, verbosity: optional(fc.constantFrom("low", "high")) })
      .map((members) => compact(members)),
  },
  { requiredKeys: [] },
);
const body: fc.Arbitrary<JsonObject> = fc
  .tuple(fc.oneof({ weight: 5, arbitrary: input }, words), rest, optional(toolMembers))
  .map(([given, members, withTools]) =>
    compact({ model: "m", input: given, ...members, ...withTools }),
  );

/** The body as its client sends it: with sealed reasoning. */
function sent(given: JsonObject): JsonObject {
  if (!Array.isArray(given.input)) return given;
  return { ...given, input: given.input.filter(isObject).map(sealed) };
}

/** The body that the provider must receive. */
function expected({ background, ...given }: JsonObject): JsonObject {
  return closedResponsesRequest(given, target);
}

test("a provider receives the body that the client sent", () => {
  fc.assert(
    fc.property(grown(body), (given) => {
      const before = JSON.stringify(sent(given));
      const client: JsonObject = JSON.parse(before);
      const received = encodeRequest(decodeRequest(client, readableSealing), target);
      expect(canonical(received)).toBe(canonical(expected(given)));
      expect(JSON.stringify(client)).toBe(before);
    }),
    { numRuns: 1000 },
  );
});

test("the law holds after protobuf serialisation too", () => {
  fc.assert(
    fc.property(grown(body), (given) => {
      const request = decodeRequest(sent(given), readableSealing);
      const read = fromBinary(GenerateRequestSchema, toBinary(GenerateRequestSchema, request));
      expect(canonical(encodeRequest(read, target))).toBe(canonical(expected(given)));
    }),
    { numRuns: 200 },
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
  sealing: readableSealing,
};
const outputItem: fc.Arbitrary<JsonObject> = fc.oneof(
  assistantMessage,
  reasoning,
  fc
    .record({ call_id: anyCallId, given: json, isGrouped: fc.boolean() })
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
    .record({ call_id: anyCallId, input: words })
    .map((members) => ({ type: "custom_tool_call", name: "patch", ...members })),
  unknownItem,
);
const outputItems = fc.uniqueArray(outputItem, {
  minLength: 1,
  maxLength: 5,
  selector: ({ call_id, ...item }) => call_id ?? JSON.stringify(item),
});

function response(items: readonly JsonObject[]): JsonObject {
  const usage = {
    input_tokens: 30,
    input_tokens_details: { cached_tokens: 10, cache_write_tokens: 5 },
    output_tokens: 9,
    output_tokens_details: { reasoning_tokens: 4 },
    total_tokens: 39,
  };
  const head = { object: "response", status: "completed", error: null, incomplete_details: null };
  const echo = { temperature: 1, truncation: "disabled", tools: [], store: false };
  return { id: "resp_1", model: "p", created_at: 1, ...head, ...echo, output: [...items], usage };
}

/** The events of these items, with their texts in pieces. */
function streamOf(items: readonly JsonObject[], cuts: readonly number[]): JsonObject[] {
  const whole = response(items);
  const middle = items.flatMap((item, output_index): JsonObject[] => {
    const deltas = (type: string, text: JsonValue | undefined, more: JsonObject = {}) =>
      cutAt(String(text), cuts).map((delta) => ({
        type: `response.${type}.delta`,
        output_index,
        ...more,
        delta,
      }));
    const parts = (Array.isArray(item.content) ? item.content : []).filter(isObject);
    const summary = (Array.isArray(item.summary) ? item.summary : []).filter(isObject);
    const start = compact({
      ...item,
      content: item.content && [],
      summary: item.summary && [],
      arguments: item.arguments && "",
      input: item.input && "",
      encrypted_content: undefined,
    });
    return [
      { type: "response.output_item.added", output_index, item: start },
      ...parts.flatMap((part, content_index) => [
        { type: "response.content_part.added", output_index, content_index, part: {} },
        ...(part.type === "refusal"
          ? deltas("refusal", part.refusal, { content_index })
          : deltas("output_text", part.text, { content_index, logprobs: [] })),
      ]),
      ...summary.flatMap(({ text }, summary_index) => [
        { type: "response.reasoning_summary_part.added", output_index, summary_index, part: {} },
        ...deltas("reasoning_summary_text", text, { summary_index }),
      ]),
      ...(item.arguments ? deltas("function_call_arguments", item.arguments) : []),
      ...(item.input ? deltas("custom_tool_call_input", item.input) : []),
      { type: "response.event_of_tomorrow", output_index, members: [1] },
      { type: "response.output_item.done", output_index, item },
    ];
  });
  const begun = { ...whole, status: "in_progress", output: [], usage: null };
  return [
    { type: "response.created", response: begun },
    { type: "response.in_progress", response: begun },
    ...middle,
    { type: "response.completed", response: whole },
  ];
}

/** A response or an event as its client gets it, without what only the gateway decides. */
function shown(value: JsonObject): string {
  const { sequence_number, gateway, response: inner, item, ...members } = value;
  const opened = (one: JsonValue) => (isObject(one) ? opening(one) : one);
  const output = Array.isArray(members.output) ? members.output.map(opened) : undefined;
  return canonical({
    ...members,
    ...(output && { output }),
    ...(item !== undefined && { item: opened(item) }),
    ...(isObject(inner) && { response: shown(closedResponse(inner, context.wishes.echo)) }),
  });
}

/** The item with what is sealed in it. */
function opening(item: JsonObject): JsonObject {
  const { encrypted_content: encrypted } = item;
  if (item.type !== "reasoning" || typeof encrypted !== "string") return item;
  if (!encrypted.startsWith("gw1.")) return item;
  const packed: JsonObject = JSON.parse(Buffer.from(encrypted.slice(4), "base64").toString());
  const { m: members } = isObject(packed.b) ? packed.b : {};
  return { ...item, ...(isObject(members) && members) };
}

test("a client receives the plain response that the provider gave", () => {
  fc.assert(
    fc.property(grown(outputItems.map((items) => response(items))), (whole) => {
      const events = decodeAnswer(whole, { writer });
      const expectedText = shown(closedResponse(whole, context.wishes.echo));
      const received = encodeAnswer(events, context);
      expect(shown(closedResponse(received, context.wishes.echo))).toBe(expectedText);
      const far = encodeAnswer(events.map(travelled), context);
      expect(shown(closedResponse(far, context.wishes.echo))).toBe(expectedText);
    }),
    { numRuns: 500 },
  );
});

function travelled(event: Event): Event {
  return fromBinary(EventSchema, toBinary(EventSchema, event));
}

const streams = fc
  .tuple(outputItems, fc.array(fc.nat(30), { maxLength: 3 }))
  .map(([items, cuts]): JsonObject => ({ events: streamOf(items, cuts) }));

/** Some servers do not number their events, and some do not begin with 0. */
const numberings = fc.constantFrom(undefined, 0, 1);

test("a client receives every event of a stream in its order, in any split of its bytes", () => {
  const splits = fc.array(fc.nat(5000), { maxLength: 8 });
  fc.assert(
    fc.property(grown(streams), splits, numberings, (given, places, first) => {
      const events = (Array.isArray(given.events) ? given.events : []).filter(isObject);
      const numberOf = (at: number) => first !== undefined && { sequence_number: first + at };
      const bytes = events
        .map(({ type, ...members }, at) => sseEvent(String(type), { ...members, ...numberOf(at) }))
        .join("");
      const decoder = createEventDecoder(false, { writer });
      const encoder = createEventEncoder(context);
      const all: Event[] = [];
      let text = "";
      for (const read of reads(bytes, places)) {
        const some = decoder.push(read);
        all.push(...some);
        text += encoder.encode(some);
      }
      const last = decoder.end();
      all.push(...last);
      text += encoder.encode(last) + encoder.end();
      const received = readEvents(text);
      expect(received.map(shown)).toEqual(events.map(shown));
      expect(received.map((one) => one.sequence_number)).toEqual(received.map((_, at) => at));
      // A plain client gets the response of the last event.
      const plain = encodeAnswer(all.map(travelled), context);
      const { response: whole } = events.at(-1) ?? {};
      expect(shown(closedResponse(plain, context.wishes.echo))).toBe(
        isObject(whole) ? shown(closedResponse(whole, context.wishes.echo)) : "",
      );
    }),
    { numRuns: 500 },
  );
});

/** The texts of an item, part by part. */
function textsOf(item: JsonObject) {
  const text = (value: JsonValue | undefined) => (typeof value === "string" ? value : "");
  const parts = (list: JsonValue | undefined) =>
    (Array.isArray(list) ? list : []).filter(isObject).map((one) => text(one.text ?? one.refusal));
  return {
    content: parts(item.content),
    summary: parts(item.summary),
    arguments: text(item.arguments),
    input: text(item.input),
  };
}

/** A summary, a text and a refusal, each of which may come after another one. */
const severalParts = fc.tuple(words, words, words, words).map(([one, next, said, refused]) => [
  { type: "reasoning", summary: [one, next].map((text) => ({ type: "summary_text", text })) },
  {
    ...{ type: "message", role: "assistant" },
    content: [
      { type: "output_text", text: said },
      { type: "refusal", refusal: refused },
      { type: "output_text", text: next },
    ],
  },
]);

test("an answer that is cut anywhere ends with all that came of each part", () => {
  const items = fc.tuple(outputItems, severalParts).map(([some, parts]) => [...parts, ...some]);
  const cuts = fc.array(fc.nat(30), { maxLength: 3 });
  fc.assert(
    fc.property(items, cuts, fc.nat(), (given, pieces, place) => {
      const events = streamOf(given, pieces);
      // Its beginning has come, and its end has not.
      const came = events.slice(0, 3 + (place % (events.length - 3)));
      const expected = new Map<JsonValue | undefined, ReturnType<typeof textsOf>>();
      for (const { type, output_index: index, item, delta, ...at } of came) {
        if (isObject(item)) expected.set(index, textsOf(item));
        const texts = expected.get(index);
        if (!texts || typeof delta !== "string") continue;
        const [, list] =
          /\.(output_text|refusal|reasoning_summary_text)\./.exec(String(type)) ?? [];
        const parts = list === "reasoning_summary_text" ? texts.summary : texts.content;
        const number = Number(at.content_index ?? at.summary_index);
        if (list) parts[number] = (parts[number] ?? "") + delta;
        else if (String(type).includes("arguments")) texts.arguments += delta;
        else texts.input += delta;
      }
      const decoder = createEventDecoder(false, { writer });
      const encoder = createEventEncoder(context);
      const bytes = came.map(({ type, ...members }) => sseEvent(String(type), members)).join("");
      const text = encoder.encode(decoder.push(Buffer.from(bytes))) + encoder.end();
      const { response: last } = readEvents(text).at(-1) ?? {};
      const output = isObject(last) && Array.isArray(last.output) ? last.output : [];
      expect(output.filter(isObject).map(textsOf)).toEqual([...expected.values()]);
    }),
    { numRuns: 300 },
  );
});
