// Properties of the codec that hold for any answer and any conversation.

import { create, type JsonObject, type JsonValue } from "@bufbuild/protobuf";
import fc from "fast-check";
import { expect, test } from "vitest";
import { type Event, EventSchema } from "../../../gen/gateway/inference/v1/event_pb.ts";
import { ApiError } from "../../../src/base/errors.ts";
import {
  createEventDecoder,
  createEventEncoder,
  decodeAnswer,
  decodeRequest,
  encodeAnswer,
  encodeRequest,
} from "../../../src/formats/chat/chat.ts";
import { isObject } from "../../../src/formats/json.ts";
import * as native from "../../../src/formats/native/native.ts";
import { anyNativeId, anyToolName } from "../../support/arbitraries.ts";
import { context, eventsOf, readStream, streamOf } from "../../support/samples/chat-bodies.ts";

type Kind = Parameters<typeof eventsOf>[number];

/**
 * Text that could break a stream: line ends of all kinds, characters of several units, the keywords
 * of the format.
 */
const text = fc.oneof(
  fc.string({ unit: "binary", maxLength: 8 }).filter((value) => value.isWellFormed()),
  fc.constantFrom("a", "\n\n", "data: x", "\u2028", "😀", "漢", "\r", "[DONE]", ""),
);
const input = fc.dictionary(
  fc.string({ maxLength: 4 }),
  fc.jsonValue({ maxDepth: 2 }) as fc.Arbitrary<JsonValue>,
  {
    maxKeys: 3,
  },
);
const count = fc.nat(100_000);

/** One block of a native provider, whole or in fragments, of any kind. */
const block = fc.oneof(
  fc.record({
    kind: fc.constant("text" as const),
    first: text,
    pieces: fc.array(text, { maxLength: 4 }),
  }),
  fc.record({
    kind: fc.constant("thinking" as const),
    first: text,
    pieces: fc.array(text, { maxLength: 4 }),
    signature: text,
  }),
  fc.record({
    kind: fc.constant("toolUse" as const),
    id: anyNativeId,
    name: anyToolName,
    input,
    cuts: fc.array(fc.nat(40), { maxLength: 3 }),
    whole: fc.boolean(),
  }),
  fc.record({ kind: fc.constant("redacted" as const), data: text }),
  fc.record({ kind: fc.constant("other" as const), pieces: fc.array(text, { maxLength: 2 }) }),
);
type BlockScript = typeof block extends fc.Arbitrary<infer T> ? T : never;

function kindsOf(script: BlockScript, index: number): Kind[] {
  const start = (
    kind: NonNullable<NonNullable<Extract<Kind, { case: "blockStart" }>["value"]>["block"]>["kind"],
  ): Kind => ({
    case: "blockStart",
    value: { index, block: { ...(kind && { kind }) } },
  });
  const stop: Kind = { case: "blockStop", value: { index } };
  switch (script.kind) {
    case "text": {
      const deltas = script.pieces.map(
        (value): Kind => ({ case: "blockDelta", value: { index, kind: { case: "text", value } } }),
      );
      return [start({ case: "text", value: { text: script.first } }), ...deltas, stop];
    }
    case "thinking": {
      const deltas = script.pieces.map(
        (value): Kind => ({
          case: "blockDelta",
          value: { index, kind: { case: "thinking", value } },
        }),
      );
      const signature: Kind = {
        case: "blockDelta",
        value: { index, kind: { case: "signature", value: script.signature } },
      };
      return [
        start({ case: "thinking", value: { thinking: script.first, signature: "" } }),
        ...deltas,
        signature,
        stop,
      ];
    }
    case "toolUse": {
      const { name, input } = script;
      // The calls of an answer have unique ids.
      const id = `${script.id}_${index}`;
      if (script.whole) return [start({ case: "toolUse", value: { id, name, input } }), stop];
      const deltas = cutAt(JSON.stringify(input), script.cuts).map(
        (value): Kind => ({
          case: "blockDelta",
          value: { index, kind: { case: "inputJson", value } },
        }),
      );
      return [start({ case: "toolUse", value: { id, name, input: {} } }), ...deltas, stop];
    }
    case "redacted":
      return [start({ case: "redactedThinking", value: { data: script.data } }), stop];
    case "other": {
      const deltas = script.pieces.map(
        (value): Kind => ({
          case: "blockDelta",
          value: { index, kind: { case: "inputJson", value } },
        }),
      );
      return [start({ case: "other", value: { type: "server_tool_use" } }), ...deltas, stop];
    }
  }
}

function cutAt(whole: string, cuts: readonly number[]): string[] {
  const places = [
    0,
    ...cuts.map((cut) => Math.min(cut, whole.length)).sort((a, b) => a - b),
    whole.length,
  ];
  return places.slice(1).map((to, index) => whole.slice(places[index], to));
}

const usage = fc.record({
  inputTokens: count,
  outputTokens: count,
  cacheReadInputTokens: count,
  cacheCreationInputTokens: count,
  thinkingTokens: count,
});
const stopReason = fc.constantFrom(
  "end_turn",
  "max_tokens",
  "tool_use",
  "refusal",
  "stop_sequence",
  "novel",
);

/** Any legal answer. */
const answer: fc.Arbitrary<Event[]> = fc
  .record({
    blocks: fc.array(block, { maxLength: 6 }),
    first: fc.option(usage, { nil: undefined }),
    last: fc.option(usage, { nil: undefined }),
    stopReason,
  })
  .map(({ blocks, first, last, stopReason }) =>
    eventsOf(
      { case: "messageStart", value: { id: "msg_1", ...(first && { usage: first }) } },
      { case: "ping", value: {} },
      ...blocks.flatMap(kindsOf),
      { case: "messageDelta", value: { stopReason, ...(last && { usage: last }) } },
      { case: "messageStop", value: {} },
    ),
  );

/** Joins chunks to a plain answer, by the rules of chat clients. */
function addUp(chunks: ReturnType<typeof readStream>): JsonObject {
  const message: JsonObject = { role: "", content: "", reasoning_content: "" };
  const calls: JsonObject[] = [];
  const details: JsonValue[] = [];
  let finishReason: JsonValue = null;
  let usage: JsonValue = null;
  for (const chunk of chunks) {
    if (chunk === "[DONE]") continue;
    usage = chunk.usage ?? usage;
    const choice = Array.isArray(chunk.choices) ? chunk.choices[0] : undefined;
    if (!isObject(choice) || !isObject(choice.delta)) continue;
    finishReason = choice.finish_reason ?? finishReason;
    const { role, content, reasoning_content, reasoning_details, tool_calls } = choice.delta;
    if (typeof role === "string") message.role += role;
    if (typeof content === "string") message.content += content;
    if (typeof reasoning_content === "string") message.reasoning_content += reasoning_content;
    if (Array.isArray(reasoning_details)) details.push(...reasoning_details);
    if (Array.isArray(tool_calls))
      for (const fragment of tool_calls) if (isObject(fragment)) addFragment(calls, fragment);
  }
  if (message.content === "" && calls.length > 0) message.content = null;
  if (message.reasoning_content === "") delete message.reasoning_content;
  if (details.length > 0) message.reasoning_details = details;
  if (calls.length > 0) message.tool_calls = calls;
  return { message, finish_reason: finishReason, usage };
}

function addFragment(calls: JsonObject[], { index, ...rest }: JsonObject): void {
  const known = calls[Number(index)];
  if (!known) {
    // The first fragment has id, type and name, and the next number.
    expect(index).toBe(calls.length);
    expect(rest).toEqual({
      id: expect.any(String),
      type: "function",
      function: { name: expect.any(String), arguments: "" },
    });
    calls.push(rest);
    return;
  }
  expect(Object.keys(rest)).toEqual(["function"]);
  expect(Number(index)).toBe(calls.length - 1);
  if (isObject(known.function) && isObject(rest.function)) {
    known.function.arguments = `${known.function.arguments}${rest.function.arguments}`;
  }
}

function plain(events: readonly Event[]): JsonObject {
  const { choices, usage } = encodeAnswer(events, context);
  const choice = Array.isArray(choices) ? choices[0] : undefined;
  if (!isObject(choice) || !isObject(choice.message)) throw new Error("no choice");
  const { refusal = null, ...message } = choice.message;
  expect(refusal).toBeNull();
  return { message, finish_reason: choice.finish_reason ?? null, usage: usage ?? null };
}

test("the chunks of a stream add up to the plain answer, with calls numbered without gaps and arguments that are JSON objects", () => {
  fc.assert(
    fc.property(answer, (events) => {
      const encoder = createEventEncoder(context);
      const sum = addUp(readStream(encoder.encode(events) + encoder.end()));
      expect(sum).toEqual(plain(events));
      const { tool_calls: calls } = isObject(sum.message) ? sum.message : {};
      for (const call of Array.isArray(calls) ? calls : []) {
        const called = isObject(call) && isObject(call.function) ? call.function : {};
        expect(isObject(JSON.parse(String(called.arguments)))).toBe(true);
      }
    }),
  );
});

test("the grouping of events does not change the stream", () => {
  fc.assert(
    fc.property(answer, (events) => {
      const together = createEventEncoder(context);
      const apart = createEventEncoder(context);
      const ids = /chatcmpl-\w+/g;
      const text = events.map((event) => apart.encode([event])).join("") + apart.end();
      expect(text.replace(ids, "")).toBe(
        (together.encode(events) + together.end()).replace(ids, ""),
      );
    }),
  );
});

test("a stream of this codec decodes to the same answer, in any split of its bytes", () => {
  fc.assert(
    fc.property(answer, fc.array(fc.nat(5000), { maxLength: 8 }), (events, cuts) => {
      const encoder = createEventEncoder(context);
      const bytes = Buffer.from(encoder.encode(events));
      const whole = createEventDecoder();
      const expected = [...whole.push(bytes), ...whole.end()];
      const places = [
        0,
        ...cuts.map((cut) => cut % (bytes.length + 1)).sort((a, b) => a - b),
        bytes.length,
      ];
      const decoder = createEventDecoder();
      const decoded = places
        .slice(1)
        .flatMap((to, index) => decoder.push(bytes.subarray(places[index], to)));
      expect([...decoded, ...decoder.end()]).toEqual(expected);
    }),
  );
});

test("a stream of this codec, decoded and encoded again, has the same answer", () => {
  fc.assert(
    fc.property(answer, (events) => {
      const encoder = createEventEncoder(context);
      const decoder = createEventDecoder();
      const again = [...decoder.push(Buffer.from(encoder.encode(events))), ...decoder.end()];
      expect(words(again)).toEqual(words(events));
      expect(words(decodeAnswer(encodeAnswer(again, context)))).toEqual(words(again));
    }),
  );
});

/**
 * The content of an answer without signatures: a stream sends them last, after the blocks of their
 * thoughts.
 */
function words(events: readonly Event[]): unknown {
  const { message, usage } = plain(events);
  const { reasoning_details: _, ...rest } = isObject(message) ? message : {};
  return { ...rest, usage };
}

/** Arbitrary chunks of a chat provider, valid or not. */
const fragment = fc.record(
  {
    index: fc.nat(2),
    id: fc.constantFrom("a", "b", "c"),
    function: fc.record(
      { name: fc.constantFrom("f", "g"), arguments: fc.constantFrom("", "{}", '{"x"', ":1}", "{") },
      { requiredKeys: [] },
    ),
  },
  { requiredKeys: [] },
);
const wildChunk = fc.oneof(
  fc.record(
    {
      model: fc.constant("m"),
      usage: fc.option(fc.record({ prompt_tokens: count, completion_tokens: count })),
      choices: fc.array(
        fc.record(
          {
            index: fc.constantFrom(0, 0, 0, 1),
            delta: fc.record(
              {
                role: fc.constant("assistant"),
                content: fc.option(text),
                reasoning_content: fc.option(text),
                tool_calls: fc.array(fragment, { maxLength: 2 }),
              },
              { requiredKeys: [] },
            ),
            finish_reason: fc.constantFrom(null, null, null, "stop", "tool_calls"),
          },
          { requiredKeys: [] },
        ),
        { maxLength: 2 },
      ),
    },
    { requiredKeys: [] },
  ),
  fc.jsonValue({ maxDepth: 2 }),
) as fc.Arbitrary<JsonValue>;

test("for any chunks of a provider, the events are in legal order and end once", () => {
  fc.assert(
    fc.property(fc.array(wildChunk, { maxLength: 8 }), fc.boolean(), (chunks, done) => {
      const decoder = createEventDecoder();
      const events = [
        ...decoder.push(streamOf(...chunks, ...(done ? ["[DONE]"] : []))),
        ...decoder.end(),
      ];
      expectLegal(events);
      // Both encoders accept them.
      const encoder = createEventEncoder(context);
      readStream(encoder.encode(events) + encoder.end());
      encodeAnswer(events, context);
    }),
    {
      numRuns: 300,
      // Two choices without an index: the first one fails the answer.
      examples: [
        [
          [
            { choices: [{ delta: { tool_calls: [{ function: { name: "f" } }] } }] },
            {
              choices: [
                {
                  delta: {
                    reasoning_content: "a",
                    tool_calls: [{ function: { arguments: ":1}" } }],
                  },
                },
                { delta: { reasoning_content: "a" } },
              ],
            },
          ],
          false,
        ],
      ],
    },
  );
});

function expectLegal(events: readonly Event[]): void {
  let started = false;
  let open: number | undefined;
  let blocks = 0;
  let ended = false;
  for (const { kind } of events) {
    expect(ended).toBe(false);
    switch (kind.case) {
      // For the meter, and for clients of this format: no part of the answer.
      case undefined:
        break;
      case "messageStart":
        expect(started).toBe(false);
        started = true;
        break;
      case "blockStart":
        expect([started, open, kind.value.index]).toEqual([true, undefined, blocks]);
        open = blocks++;
        break;
      case "blockDelta":
        expect(kind.value.index).toBe(open);
        break;
      case "blockStop":
        expect(kind.value.index).toBe(open);
        open = undefined;
        break;
      case "messageDelta":
        expect([started, open]).toEqual([true, undefined]);
        break;
      case "messageStop":
      case "failure":
        ended = true;
        break;
      default:
        expect.unreachable();
    }
  }
  expect(ended).toBe(true);
}

test("any events in any order are encoded without an error", () => {
  const kind = fc.oneof(
    fc.nat(3).map((index): Kind => ({ case: "blockStop", value: { index } })),
    fc
      .record({ script: block, index: fc.nat(3) })
      .map(({ script, index }) => kindsOf(script, index)[0]),
    fc.record({ value: text, index: fc.nat(3) }).map(
      ({ value, index }): Kind => ({
        case: "blockDelta",
        value: { index, kind: { case: "inputJson", value } },
      }),
    ),
    fc.constant<Kind>({ case: "blockDelta", value: { index: 0 } }),
    fc.constant<Kind>({ case: "messageDelta", value: {} }),
    fc.constant<Kind>({ case: "messageStart", value: {} }),
    fc.constant<Kind>({ case: "blockStart", value: { index: 0 } }),
  );
  fc.assert(
    fc.property(fc.array(kind, { maxLength: 10 }), (kinds) => {
      const events = [create(EventSchema), ...eventsOf(...kinds)];
      const encoder = createEventEncoder(context);
      expect(addUp(readStream(encoder.encode(events) + encoder.end()))).toEqual(plain(events));
    }),
  );
});

/** Text that neither format omits or trims. */
const said = text.map((value) => `x${value}x`);
const turnPair = fc.record({
  asked: fc.array(said, { minLength: 1, maxLength: 2 }),
  answered: fc.array(said, { maxLength: 2 }),
  calls: fc.uniqueArray(
    fc.record({
      id: anyNativeId,
      name: anyToolName,
      input,
      result: fc.array(said, { maxLength: 2 }),
      plain: fc.boolean(),
    }),
    {
      maxLength: 3,
      selector: (call) => call.id,
    },
  ),
});

test("a conversation keeps its text, tools and ids from native through chat to native", () => {
  fc.assert(
    fc.property(
      fc.array(turnPair, { minLength: 1, maxLength: 4 }),
      fc.array(said, { maxLength: 2 }),
      fc.uniqueArray(anyToolName, { maxLength: 2 }),
      (pairs, system, names) => {
        const body: JsonObject = {
          model: "m",
          max_tokens: 100,
          system: system.map((value) => ({ type: "text", text: value })),
          // An id that occurs twice would be repaired.
          messages: pairs.flatMap((pair, index) =>
            nativeTurns({
              ...pair,
              calls: pair.calls.map((call) => ({ ...call, id: `${call.id}_${index}` })),
            }),
          ),
          ...(names.length > 0 && {
            tools: names.map((one) => ({
              name: one,
              description: "d",
              input_schema: { type: "object", properties: { b: {}, a: {} } },
            })),
          }),
        };
        const headers = { version: "2023-06-01", beta: "" };
        const asChat = encodeRequest(native.decodeRequest(body, headers), {
          model: "m",
          stream: false,
        });
        const back = native.encodeRequest(decodeRequest(asChat), { model: "m", stream: false });
        expect(gist(back)).toEqual(gist(body));
        expect(back.tools).toEqual(body.tools);
        expect(back.max_tokens).toBe(100);
      },
    ),
  );
});

function nativeTurns({
  asked,
  answered,
  calls,
}: typeof turnPair extends fc.Arbitrary<infer T> ? T : never): JsonObject[] {
  const texts = (values: string[]) => values.map((value) => ({ type: "text", text: value }));
  const uses = calls.map(({ id, name, input }) => ({ type: "tool_use", id, name, input }));
  const results = calls.map(({ id, result, plain }) => ({
    type: "tool_result",
    tool_use_id: id,
    content: plain ? result.join("") : texts(result),
  }));
  const turns: JsonObject[] = [{ role: "user", content: texts(asked) }];
  if (answered.length + uses.length > 0)
    turns.push({ role: "assistant", content: [...texts(answered), ...uses] });
  if (results.length > 0) turns.push({ role: "user", content: results });
  return turns;
}

/**
 * The content of a native conversation: the text, calls and results of each run of one role. The
 * boundaries between text blocks are not part of it.
 */
function gist({ system, messages }: JsonObject): unknown {
  const turns: { role: JsonValue; texts: string[]; calls: unknown[]; results: unknown[] }[] = [];
  for (const message of Array.isArray(messages) ? messages : []) {
    if (!isObject(message)) continue;
    if (turns.at(-1)?.role !== message.role)
      turns.push({ role: message.role ?? null, texts: [], calls: [], results: [] });
    const turn = turns.at(-1);
    const blocks: JsonValue | undefined =
      typeof message.content === "string"
        ? [{ type: "text", text: message.content }]
        : message.content;
    for (const block of Array.isArray(blocks) ? blocks : []) {
      if (!isObject(block)) continue;
      if (block.type === "text") turn?.texts.push(String(block.text));
      if (block.type === "tool_use")
        turn?.calls.push([block.id, block.name, JSON.stringify(block.input)]);
      if (block.type === "tool_result")
        turn?.results.push([block.tool_use_id, textIn(block.content, "\n")]);
    }
  }
  const joined = turns.map(({ texts, ...rest }) => ({
    ...rest,
    text: texts.join(rest.role === "assistant" ? "" : "|"),
  }));
  return { system: textIn(system, "\n"), turns: joined };
}

function textIn(content: JsonValue | undefined, between: string): string {
  if (typeof content === "string") return content;
  if (!Array.isArray(content)) return "";
  return content.map((block) => (isObject(block) ? String(block.text) : "")).join(between);
}

test("any body is decoded or rejected with an ApiError", () => {
  const value = fc.jsonValue({ maxDepth: 3 }) as fc.Arbitrary<JsonValue>;
  const names = [
    "messages",
    "tools",
    "tool_choice",
    "functions",
    "function_call",
    "stop",
    "stream_options",
    "response_format",
    "thinking",
    "n",
  ];
  const part = fc.record({
    type: fc.constantFrom(
      "text",
      "image_url",
      "file",
      "image",
      "tool_use",
      "tool_result",
      "thinking",
    ),
    text: value,
    image_url: value,
    file: value,
    source: value,
    id: value,
    tool_use_id: value,
    content: value,
  });
  const message = fc.record(
    {
      role: fc.constantFrom("user", "assistant", "tool", "system", "function"),
      content: fc.oneof(value, fc.array(part, { maxLength: 2 })),
      tool_calls: value,
      function_call: value,
      tool_call_id: value,
      reasoning_details: value,
    },
    { requiredKeys: ["role"] },
  );
  const members = fc.dictionary(fc.constantFrom(...names), value, { maxKeys: 4 });
  fc.assert(
    fc.property(
      members,
      fc.option(fc.array(message, { minLength: 1, maxLength: 3 })),
      (some, messages) => {
        let outcome: unknown;
        try {
          const body = { model: "m", ...some, ...(messages && { messages }) } as JsonObject;
          outcome = decodeRequest(body).model;
        } catch (error) {
          outcome = error instanceof ApiError ? error.reason : error;
        }
        expect(["m", "invalid_request"]).toContain(outcome);
      },
    ),
    { numRuns: 500 },
  );
});
