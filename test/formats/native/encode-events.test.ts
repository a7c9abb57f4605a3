// Streams in the native format, from the events of any provider and codec.

import { create, type JsonObject, type MessageInitShape } from "@bufbuild/protobuf";
import fc from "fast-check";
import { expect, test } from "vitest";
import { Format } from "../../../gen/gateway/inference/v1/content_pb.ts";
import {
  type Event,
  EventSchema,
  WireFormSchema,
} from "../../../gen/gateway/inference/v1/event_pb.ts";
import { createEventEncoder, encodeAnswer } from "../../../src/formats/native/native.ts";
import { createSseParser } from "../../../src/formats/sse.ts";

const context = { model: "model-haiku-4.5", estimatedInputTokens: 77 };

type Kind = MessageInitShape<typeof EventSchema>["kind"];
const event = (
  kind: NonNullable<Kind>,
  rest: Omit<MessageInitShape<typeof EventSchema>, "$typeName" | "kind"> = {},
): Event => create(EventSchema, { kind, ...rest });
const start = event({ case: "messageStart", value: {} });
const text = (index: number, value: string): Event =>
  event({ case: "blockDelta", value: { index, kind: { case: "text", value } } });
const openText = (index: number, value = ""): Event =>
  event({
    case: "blockStart",
    value: { index, block: { kind: { case: "text", value: { text: value } } } },
  });
const close = (index: number): Event => event({ case: "blockStop", value: { index } });
const end = event({
  case: "messageDelta",
  value: { stopReason: "end_turn", usage: { inputTokens: 5, outputTokens: 9 } },
});
const stop = event({ case: "messageStop", value: {} });

function encode(...events: Event[]): JsonObject[] {
  const encoder = createEventEncoder(context);
  const parser = createSseParser();
  return parser
    .push(Buffer.from(encoder.encode(events) + encoder.end()))
    .map(({ event: name, data }) => {
      const value = JSON.parse(data);
      expect(value.type).toBe(name);
      return value;
    });
}

test("an answer without usage starts with an id, the catalogue's model, the estimate and no output", () => {
  const [first, ...others] = encode(start, openText(0), text(0, "hi"), close(0), end, stop);
  expect(first).toEqual({
    type: "message_start",
    message: {
      id: expect.stringMatching(/^msg_[0-9A-Za-z]{24}$/),
      type: "message",
      role: "assistant",
      model: "model-haiku-4.5",
      content: [],
      stop_reason: null,
      stop_sequence: null,
      usage: {
        input_tokens: 77,
        cache_creation_input_tokens: 0,
        cache_read_input_tokens: 0,
        output_tokens: 0,
      },
    },
  });
  expect(others).toEqual([
    { type: "content_block_start", index: 0, content_block: { type: "text", text: "" } },
    { type: "content_block_delta", index: 0, delta: { type: "text_delta", text: "hi" } },
    { type: "content_block_stop", index: 0 },
    {
      type: "message_delta",
      delta: { stop_reason: "end_turn", stop_sequence: null },
      usage: { input_tokens: 5, output_tokens: 9 },
    },
    { type: "message_stop" },
  ]);
});

test("an input that the provider reports at the start replaces the estimate", () => {
  const usageOf = (usage: object) =>
    encode(event({ case: "messageStart", value: { id: "msg_1", usage } }))[0]?.message;
  expect(usageOf({ inputTokens: 0, cacheReadInputTokens: 3 })).toMatchObject({
    id: "msg_1",
    usage: { input_tokens: 0, cache_creation_input_tokens: 0, cache_read_input_tokens: 3 },
  });
  expect(usageOf({ inputTokens: 0, outputTokens: 1 })).toMatchObject({
    usage: { input_tokens: 77, output_tokens: 1 },
  });
});

test("an end without usage repeats the last reported output", () => {
  const reported = event({
    case: "messageStart",
    value: { usage: { inputTokens: 1, outputTokens: 4 } },
  });
  const silent = event({ case: "messageDelta", value: { stopReason: "end_turn" } });
  expect(encode(reported, silent)[1]).toMatchObject({ usage: { output_tokens: 4 } });
  expect(encode(start, silent)[1]).toMatchObject({ usage: { output_tokens: 0 } });
});

test("blocks are numbered without gaps, even if the provider's numbers have gaps", () => {
  const events = encode(
    start,
    openText(3),
    text(3, "a"),
    close(3),
    openText(7),
    text(7, "b"),
    close(7),
    end,
    stop,
  );
  expect(events.flatMap(({ index }) => (index === undefined ? [] : [index]))).toEqual([
    0, 0, 0, 1, 1, 1,
  ]);
});

test("blocks that came with the start of the answer have the first numbers", () => {
  const earlier = [{ type: "tool_use", id: "t", name: "f", input: {} }];
  const filled = event({ case: "messageStart", value: { extensions: { content: earlier } } });
  const events = [filled, openText(1), text(1, "a"), close(1), end, stop];
  const [first, ...others] = encode(...events);
  expect(first).toMatchObject({ message: { content: earlier } });
  expect(others.flatMap(({ index }) => (index === undefined ? [] : [index]))).toEqual([1, 1, 1]);
  expect(encodeAnswer(events, context).content).toEqual([...earlier, { type: "text", text: "a" }]);
});

test("the id of the answer has the form of the format, even if the provider's has not", () => {
  const minted = expect.stringMatching(/^msg_[0-9A-Za-z]{24}$/);
  for (const [id, shown] of [
    ["msg_bdrk_1", "msg_bdrk_1"],
    ["chatcmpl-1", minted],
  ]) {
    const named = event({ case: "messageStart", value: { id: String(id) } });
    expect(encode(named)[0]?.message).toMatchObject({ id: shown });
    expect(encodeAnswer([named, end, stop], context)).toMatchObject({ id: shown });
  }
});

test("members that a provider adds to a plain answer do not replace the answer's own", () => {
  const foreign = {
    id: "chatcmpl-1",
    type: "x",
    role: "x",
    model: "x",
    content: "x",
    stop_reason: "x",
    stop_sequence: "x",
    y: 1,
  };
  const named = event({
    case: "messageStart",
    value: { id: "msg_1", extensions: { model: "x", z: 1 } },
  });
  const ended = event({
    case: "messageDelta",
    value: { stopReason: "end_turn", deltaExtensions: foreign, extensions: foreign },
  });
  const answer = encodeAnswer([named, openText(0, "a"), close(0), ended, stop], context);
  expect(answer).toMatchObject({
    id: "msg_1",
    type: "message",
    role: "assistant",
    model: "model-haiku-4.5",
    content: [{ type: "text", text: "a" }],
    stop_reason: "end_turn",
    stop_sequence: null,
    y: 1,
    z: 1,
  });
  expect(Object.keys(answer).slice(0, 3)).toEqual(["id", "type", "role"]);
});

const complete: { name: string; block: object; start: JsonObject; deltas: JsonObject[] }[] = [
  {
    name: "text",
    block: { kind: { case: "text", value: { text: "hi" } }, extensions: { citations: [{ a: 1 }] } },
    start: { type: "text", text: "", citations: [] },
    deltas: [
      { type: "text_delta", text: "hi" },
      { type: "citations_delta", citation: { a: 1 } },
    ],
  },
  {
    name: "thinking",
    block: { kind: { case: "thinking", value: { thinking: "hm", signature: "sig" } } },
    start: { type: "thinking", thinking: "", signature: "" },
    deltas: [
      { type: "thinking_delta", thinking: "hm" },
      { type: "signature_delta", signature: "sig" },
    ],
  },
  {
    name: "thinking without text",
    block: { kind: { case: "thinking", value: { thinking: "", signature: "sig" } } },
    start: { type: "thinking", thinking: "", signature: "" },
    deltas: [{ type: "signature_delta", signature: "sig" }],
  },
  {
    name: "a tool call",
    block: {
      kind: { case: "toolUse", value: { id: "t", name: "f", input: { b: 1, a: 2 } } },
      extensions: { caller: null },
    },
    start: { type: "tool_use", id: "t", name: "f", input: {}, caller: null },
    deltas: [{ type: "input_json_delta", partial_json: '{"b":1,"a":2}' }],
  },
  {
    name: "a tool call without arguments",
    block: { kind: { case: "toolUse", value: { id: "t", name: "f" } } },
    start: { type: "tool_use", id: "t", name: "f", input: {} },
    deltas: [],
  },
  {
    name: "redacted thinking",
    block: { kind: { case: "redactedThinking", value: { data: "x" } } },
    start: { type: "redacted_thinking", data: "x" },
    deltas: [],
  },
  {
    name: "an unknown kind",
    block: { kind: { case: "other", value: { type: "newest", content: "x" } } },
    start: { type: "newest", content: "x" },
    deltas: [],
  },
];
for (const { name, block, start: first, deltas } of complete) {
  test(`${name} that arrives complete is sent as an empty block and deltas`, () => {
    const opened = event({ case: "blockStart", value: { index: 0, block } });
    expect(encode(start, opened, close(0)).slice(1)).toEqual([
      { type: "content_block_start", index: 0, content_block: first },
      ...deltas.map((delta) => ({ type: "content_block_delta", index: 0, delta })),
      { type: "content_block_stop", index: 0 },
    ]);
  });
}

test("arguments in deltas replace those of the block start", () => {
  const opened = event({
    case: "blockStart",
    value: {
      index: 0,
      block: { kind: { case: "toolUse", value: { id: "t", name: "f", input: { a: 1 } } } },
    },
  });
  const delta = event({
    case: "blockDelta",
    value: { index: 0, kind: { case: "inputJson", value: '{"b":2}' } },
  });
  const events = encode(start, opened, delta, close(0));
  expect(events.slice(2).map((one) => one.delta)).toEqual([
    { type: "input_json_delta", partial_json: '{"b":2}' },
    undefined,
  ]);
  expect(encodeAnswer([start, opened, delta, close(0), end, stop], context).content).toMatchObject([
    { input: { b: 2 } },
  ]);
});

test("every event is one line that no client splits", () => {
  const value = "a\u2028b\u2029c\u0085d\n\ndata: x";
  const encoder = createEventEncoder(context);
  const raw = Buffer.from(
    `{"type":"content_block_delta",\n"index":0,"delta":{"type":"text_delta","text":"\u2028"},"beside":"\u0085"}`,
  );
  const written = encoder.encode([
    start,
    openText(0, value),
    text(0, value),
    event(
      { case: "blockDelta", value: { index: 0, kind: { case: "text", value: "\u2028" } } },
      { wireForm: { format: Format.NATIVE, data: raw } },
    ),
    close(0),
    event({ case: "other", value: { type: "newest", value } }),
    end,
    stop,
  ]);
  expect(written).not.toMatch(/[\r\u2028\u2029\u0085]/);
  for (const one of written.split("\n\n").slice(0, -1))
    expect(one).toMatch(/^event: \w+\ndata: \{[^\n]*\}$/);
  expect(written).toContain('"beside":"\\u0085"');
});

test("an event whose type could break a line is omitted", () => {
  expect(encode(start, event({ case: "other", value: { type: "a\nb" } })).length).toBe(1);
});

test("pings and failures are whole events, and nothing follows a failure or the end", () => {
  const encoder = createEventEncoder(context);
  expect(encoder.ping()).toBe('event: ping\ndata: {"type":"ping"}\n\n');
  const problem = {
    type: "error",
    error: { type: "overloaded_error", message: "a\u2028b" },
    request_id: "req_1",
  };
  expect(encoder.failure(problem)).toBe(
    'event: error\ndata: {"type":"error","error":{"type":"overloaded_error","message":"a\\u2028b"},"request_id":"req_1"}\n\n',
  );
  expect(encoder.encode([start, stop])).toBe("");
  expect(encode(start, end, stop, end, stop).length).toBe(3);
});

test("arguments that are not a JSON object are passed on as _raw, never as an empty object", () => {
  const opened = event({
    case: "blockStart",
    value: { index: 0, block: { kind: { case: "toolUse", value: { id: "t", name: "f" } } } },
  });
  const delta = event({
    case: "blockDelta",
    value: { index: 0, kind: { case: "inputJson", value: '{"b":' } },
  });
  expect(encodeAnswer([start, opened, delta, close(0), end, stop], context).content).toEqual([
    { type: "tool_use", id: "t", name: "f", input: { _raw: '{"b":' } },
  ]);
});

test("any legal order of events becomes a valid stream, which adds up to the plain answer", () => {
  const piece = fc.oneof(
    fc.record({
      case: fc.constantFrom(
        "text" as const,
        "thinking" as const,
        "inputJson" as const,
        "signature" as const,
      ),
      value: fc.string(),
    }),
    fc.constant({ case: "other" as const, value: { type: "newest_delta" } }),
  );
  const kind = fc.oneof(
    fc.string().map((value) => ({ case: "text" as const, value: { text: value } })),
    fc.string().map((value) => ({
      case: "thinking" as const,
      value: { thinking: value, signature: value },
    })),
    fc.constant({ case: "toolUse" as const, value: { id: "t", name: "f", input: { a: 1 } } }),
    fc.constant({ case: "other" as const, value: { type: "newest" } }),
    fc.constant({ case: undefined }),
  );
  const block = fc.tuple(fc.option(kind), fc.array(piece, { maxLength: 4 }));
  const usage = fc.option(
    fc.record({ inputTokens: fc.nat(), outputTokens: fc.nat() }, { requiredKeys: [] }),
    {
      nil: undefined,
    },
  );
  const answer = fc.tuple(
    usage,
    fc.array(block, { maxLength: 4 }),
    fc.array(usage, { minLength: 1, maxLength: 3 }),
  );
  fc.assert(
    fc.property(
      answer,
      fc.constantFrom(undefined, create(WireFormSchema, { format: Format.NATIVE })),
      ([first, blocks, ends], wireForm) => {
        const events = [
          event(
            { case: "messageStart", value: { ...(first && { usage: first }) } },
            wireForm && { wireForm },
          ),
          ...blocks.flatMap(([opening, pieces], index) => [
            event(
              {
                case: "blockStart",
                value: { index, ...(opening && { block: { kind: opening } }) },
              },
              wireForm && { wireForm },
            ),
            ...pieces.map((one) =>
              event({ case: "blockDelta", value: { index, kind: one } }, wireForm && { wireForm }),
            ),
            close(index),
          ]),
          ...ends.map((one) =>
            event(
              {
                case: "messageDelta",
                value: { stopReason: "end_turn", ...(one && { usage: one }) },
              },
              wireForm && { wireForm },
            ),
          ),
          stop,
        ];
        const order = encode(...events).map((one) =>
          String(one.type).replaceAll("content_block_", ""),
        );
        expect(order.join(" ")).toMatch(
          /^message_start( start( delta)* stop)*( message_delta)+ message_stop$/,
        );
        expect(encodeAnswer(events, context)).toMatchObject({
          type: "message",
          stop_reason: "end_turn",
        });
      },
    ),
    { numRuns: 500 },
  );
});
