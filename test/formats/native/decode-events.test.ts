// Streams of providers that differ from the vendor's.

import type { JsonObject } from "@bufbuild/protobuf";
import fc from "fast-check";
import { expect, test } from "vitest";
import type { Event } from "../../../gen/gateway/inference/v1/event_pb.ts";
import { progressOf } from "../../../src/formats/events.ts";
import {
  createEventDecoder,
  decodeAnswer,
  decodeCount,
} from "../../../src/formats/native/native.ts";
import { streamOf } from "../../support/samples/native-answers.ts";
import { anyObject, anyValue } from "../../support/samples/native-bodies.ts";

function decodeText(text: string | Uint8Array): Event[] {
  const decoder = createEventDecoder();
  return [...decoder.push(Buffer.from(text)), ...decoder.end()];
}
const decode = (...events: JsonObject[]): Event[] => decodeText(streamOf(events));
// Reports ahead of the end are for the meter, and no part of the answer.
const kinds = (events: Event[]): (string | undefined)[] =>
  events.map((event) => event.kind.case).filter((kind) => kind !== undefined);
const failureOf = (events: Event[]): string | undefined => {
  const last = events.at(-1)?.kind;
  return last?.case === "failure" ? `${last.value.type}: ${last.value.message}` : undefined;
};

const start = {
  type: "message_start",
  message: { id: "msg_1", usage: { input_tokens: 3, output_tokens: 1 } },
};
const open = (index: number, block: JsonObject = { type: "text", text: "" }) => ({
  type: "content_block_start",
  index,
  content_block: block,
});
const add = (index: number, text: string) => ({
  type: "content_block_delta",
  index,
  delta: { type: "text_delta", text },
});
const close = (index: number) => ({ type: "content_block_stop", index });
const end = {
  type: "message_delta",
  delta: { stop_reason: "end_turn" },
  usage: { output_tokens: 2 },
};
const stop = { type: "message_stop" };

const repaired: { name: string; events: JsonObject[]; kinds: string[] }[] = [
  {
    name: "a block that is not stopped before the next",
    events: [start, open(0), open(1), close(1), end, stop],
    kinds: [
      "messageStart",
      "blockStart",
      "blockStop",
      "blockStart",
      "blockStop",
      "messageDelta",
      "messageStop",
    ],
  },
  {
    name: "a block that is not stopped before the end",
    events: [start, open(0), add(0, "x"), end, stop],
    kinds: ["messageStart", "blockStart", "blockDelta", "blockStop", "messageDelta", "messageStop"],
  },
  {
    name: "a block that is stopped twice",
    events: [start, open(0), close(0), close(0), open(1), close(1), end, stop],
    kinds: [
      "messageStart",
      "blockStart",
      "blockStop",
      "blockStart",
      "blockStop",
      "messageDelta",
      "messageStop",
    ],
  },
  {
    name: "an end without a stop reason",
    events: [start, open(0), close(0), stop],
    kinds: ["messageStart", "blockStart", "blockStop", "messageDelta", "messageStop"],
  },
  {
    name: "a stream that closes after its stop reason",
    events: [start, open(0), close(0), end],
    kinds: ["messageStart", "blockStart", "blockStop", "messageDelta", "messageStop"],
  },
  {
    name: "a stop reason that is null until the end",
    events: [
      start,
      open(0),
      close(0),
      { ...end, delta: { stop_reason: null } },
      { type: "ping" },
      stop,
    ],
    kinds: ["messageStart", "blockStart", "blockStop", "ping", "messageDelta", "messageStop"],
  },
  {
    name: "events after the end",
    events: [start, end, stop, start, add(0, "x"), stop],
    kinds: ["messageStart", "messageDelta", "messageStop"],
  },
  {
    name: "pings and unknown events, which may occur anywhere",
    events: [
      { type: "ping" },
      { type: "newest" },
      start,
      open(0),
      { type: "ping" },
      close(0),
      end,
      { type: "newest" },
      stop,
    ],
    kinds: [
      "ping",
      "other",
      "messageStart",
      "blockStart",
      "ping",
      "blockStop",
      "messageDelta",
      "other",
      "messageStop",
    ],
  },
];
for (const { name, events, kinds: expected } of repaired) {
  test(`${name}: the order is legal`, () => {
    expect(kinds(decode(...events))).toEqual(expected);
  });
}

const broken: { name: string; events: JsonObject[]; kinds: string[]; message: string }[] = [
  { name: "an empty stream", events: [], kinds: [], message: "broke off" },
  {
    name: "a stream that closes before its stop reason",
    events: [start, { ...end, delta: { stop_reason: null } }],
    kinds: ["messageStart", "messageDelta"],
    message: "broke off",
  },
  {
    name: "a stream that closes during the text",
    events: [start, open(0), add(0, "x")],
    kinds: ["messageStart", "blockStart", "blockDelta"],
    message: "broke off",
  },
  {
    name: "a block before the start",
    events: [open(0), start],
    kinds: [],
    message: "out of order",
  },
  {
    name: "a delta without a block",
    events: [start, add(0, "x")],
    kinds: ["messageStart"],
    message: "out of order",
  },
  {
    name: "a delta of another block",
    events: [start, open(0), add(1, "x")],
    kinds: ["messageStart", "blockStart"],
    message: "out of order",
  },
  { name: "an end before the start", events: [stop], kinds: [], message: "out of order" },
  {
    name: "a start without its message",
    events: [{ type: "message_start" }],
    kinds: [],
    message: "cannot be read",
  },
  {
    name: "an index that is not a number",
    events: [start, { type: "content_block_stop", index: "0" }],
    kinds: ["messageStart"],
    message: "cannot be read",
  },
];
for (const { name, events, kinds: before, message } of broken) {
  test(`${name} ends in a failure after the valid events`, () => {
    const decoded = decode(...events);
    expect(kinds(decoded)).toEqual([...before, "failure"]);
    const type = message === "broke off" ? "api_error" : "unreadable_answer";
    expect(failureOf(decoded)).toMatch(new RegExp(`^${type}: The model provider .*${message}`));
  });
}

test("a provider's own error keeps its type and ends the answer", () => {
  const error = {
    type: "error",
    error: { type: "overloaded_error", message: "Overloaded", details: null },
    request_id: "req_x",
  };
  const decoded = decode(start, error, stop);
  expect(kinds(decoded)).toEqual(["messageStart", "failure"]);
  expect(decoded[1]?.kind.value).toMatchObject({
    type: "overloaded_error",
    message: "Overloaded",
    extensions: { details: null },
  });
  expect(failureOf(decodeText('data: {"error":{"message":"no"}}\n\n'))).toBe("api_error: no");
});

test("a repeated start is dropped, and the answer goes on", () => {
  const decoded = decode(start, start, open(0), start, add(0, "x"));
  expect(kinds(decoded).slice(0, 3)).toEqual(["messageStart", "blockStart", "blockDelta"]);
});

test("the usage that comes with an error is reported before it", () => {
  const error = { type: "error", error: { type: "api_error", message: "oops" } };
  const decoded = decode(start, { ...error, usage: { input_tokens: 3, output_tokens: 2 } });
  expect(decoded.map(({ kind }) => kind.case)).toEqual(["messageStart", undefined, "failure"]);
  expect(decoded.map(progressOf)[1]).toMatchObject({ usage: { inputTokens: 3, outputTokens: 2 } });
});

test("data that is not JSON becomes a failure that does not repeat it", () => {
  const failed = failureOf(decodeText("event: message_start\ndata: {secret\n\n"));
  expect(failed).toBe("unreadable_answer: The model provider sent an event that cannot be read.");
  expect(
    failureOf(decodeText(`data: {"type":"newest","a":${"[".repeat(300)}${"]".repeat(300)}}\n\n`)),
  ).toBe(failed);
});

test("the name of an event replaces an absent type, and the terminator of chat is skipped", () => {
  const text =
    'event: message_start\ndata: {"message":{}}\n\nevent: message_stop\ndata: {}\n\ndata: [DONE]\n\n';
  expect(kinds(decodeText(text))).toEqual(["messageStart", "messageDelta", "messageStop"]);
});

test("an event without data is skipped unless it is a ping", () => {
  const [first, ...others] = [start, end, stop].map((one) => streamOf([one]).toString());
  const decoded = decodeText(
    `event: ping\ndata:\n\n${first}event: ping\ndata:\n\ndata:\n\n${others.join("")}`,
  );
  expect(kinds(decoded)).toEqual(["ping", "messageStart", "ping", "messageDelta", "messageStop"]);
});

const unsaid = { ...end, delta: { stop_reason: null } };
const reasons: { name: string; events: JsonObject[]; reasons: (string | undefined)[] }[] = [
  {
    name: "an answer without a stop reason gets end_turn",
    events: [start, open(0), close(0), unsaid, stop],
    reasons: ["end_turn"],
  },
  {
    name: "an answer with a tool call and without a stop reason gets tool_use",
    events: [
      start,
      open(0, { type: "tool_use", id: "t", name: "f", input: {} }),
      close(0),
      unsaid,
      stop,
    ],
    reasons: ["tool_use"],
  },
  {
    name: "a late stop reason of the provider counts",
    events: [start, unsaid, end, stop],
    reasons: [undefined, "end_turn"],
  },
  {
    name: "a stop reason stays when a later delta has none",
    events: [start, end, unsaid, stop],
    reasons: ["end_turn", undefined],
  },
];
for (const { name, events, reasons: expected } of reasons) {
  test(name, () => {
    const deltas = decode(...events).flatMap(({ kind }) =>
      kind.case === "messageDelta" ? [kind.value] : [],
    );
    expect(deltas.map((delta) => delta.stopReason)).toEqual(expected);
    expect(deltas.map((delta) => delta.usage?.outputTokens)).toEqual(expected.map(() => 2));
  });
}

test("absent members that clients rely on are added", () => {
  const blocks = decode(
    start,
    open(0, { type: "text" }),
    open(1, { type: "thinking", thinking: "" }),
    open(2, { type: "tool_use", id: "t", name: "f" }),
    stop,
  );
  const values = blocks.flatMap(({ kind }) =>
    kind.case === "blockStart" ? [kind.value.block?.kind.value] : [],
  );
  expect(values).toMatchObject([
    { text: "" },
    { thinking: "", signature: "" },
    { id: "t", name: "f", input: {} },
  ]);
  const last = blocks.at(-2)?.kind;
  expect(last?.case === "messageDelta" && last.value.stopReason).toBe("tool_use");
});

test("usage is decoded member by member, with thinking apart", () => {
  const usage = {
    input_tokens: 10,
    output_tokens: 7,
    cache_creation_input_tokens: 4,
    cache_read_input_tokens: null,
    cache_creation: { ephemeral_5m_input_tokens: 1, ephemeral_1h_input_tokens: 3, other: 0 },
    output_tokens_details: { thinking_tokens: 5, other: 1 },
    server_tool_use: { web_search_requests: 1 },
  };
  const [, delta] = decode(start, { ...end, usage }, stop);
  expect(delta?.kind.case === "messageDelta" && delta.kind.value.usage).toMatchObject({
    inputTokens: 10,
    outputTokens: 7,
    cacheCreationInputTokens: 4,
    cacheCreation: {
      ephemeral5mInputTokens: 1,
      ephemeral1hInputTokens: 3,
      extensions: { other: 0 },
    },
    thinkingTokens: 5,
    extensions: {
      cache_read_input_tokens: null,
      output_tokens_details: { thinking_tokens: 5, other: 1 },
      server_tool_use: { web_search_requests: 1 },
    },
  });
});

test("a number that is not a token count is dropped", () => {
  const usage = {
    input_tokens: -5,
    output_tokens: 1e15,
    cache_read_input_tokens: 0.5,
    cache_creation_input_tokens: null,
  };
  const [, delta] = decode(start, { ...end, usage }, stop);
  const reported = delta?.kind.case === "messageDelta" ? delta.kind.value.usage : undefined;
  expect(reported?.extensions).toEqual({ cache_creation_input_tokens: null });
  expect([reported?.inputTokens, reported?.outputTokens, reported?.cacheReadInputTokens]).toEqual(
    Array(3).fill(undefined),
  );
});

test("a plain answer without a stop reason gets one", () => {
  const reasonOf = (block: JsonObject) => {
    const delta = decodeAnswer({ content: [block], stop_reason: null }).at(-2)?.kind;
    return delta?.case === "messageDelta" && delta.value.stopReason;
  };
  expect(reasonOf({ type: "text", text: "a" })).toBe("end_turn");
  expect(reasonOf({ type: "tool_use", id: "t", name: "f", input: {} })).toBe("tool_use");
});

test("a body that is not an answer becomes a failure", () => {
  expect(
    failureOf(decodeAnswer({ type: "error", error: { type: "api_error", message: "no" } })),
  ).toBe("api_error: no");
  expect(failureOf(decodeAnswer({}))).toMatch(/cannot be read/);
  expect(failureOf(decodeAnswer({ content: ["x"] }))).toMatch(/cannot be read/);
});

test("a count is a number and any further members", () => {
  expect(decodeCount({ input_tokens: 5, context_management: { a: 1 } })).toEqual({
    inputTokens: 5,
    extensions: { context_management: { a: 1 } },
  });
  expect(() => decodeCount({ input_tokens: "5" })).toThrow(
    expect.objectContaining({ reason: "upstream_error" }),
  );
});

test("for any events of a provider, the decoded events are in legal order and end once", () => {
  const index = fc.nat({ max: 2 });
  const event = fc.oneof(
    fc.constantFrom<JsonObject>(start, end, stop, { type: "ping" }, { type: "error", error: {} }),
    index.map((one) => open(one)),
    index.map((one) => add(one, "x")),
    index.map(close),
    fc
      .tuple(
        fc.constantFrom(
          "message_start",
          "content_block_start",
          "content_block_delta",
          "message_delta",
          "newest",
        ),
        anyObject,
      )
      .map(([type, members]) => ({ ...members, type })),
    fc
      .tuple(index, anyValue)
      .map(([one, delta]) => ({ type: "content_block_delta", index: one, delta })),
  );
  fc.assert(
    // A report on the way waits for the next one; a failure may come while its block is open.
    fc.property(fc.array(event, { maxLength: 12 }), fc.string(), (events, junk) => {
      const order = kinds(decodeText(Buffer.concat([streamOf(events), Buffer.from(junk)])))
        .filter((kind) => kind !== "ping" && kind !== "other")
        .join(" ");
      const whole =
        /^messageStart( blockStart( blockDelta)* blockStop)*( messageDelta)+ messageStop$/;
      const failed =
        /^(messageStart( blockStart( blockDelta)* blockStop)*( blockStart( blockDelta)*|( messageDelta)*) )?failure$/;
      expect(whole.test(order) || failed.test(order), order).toBe(true);
    }),
    {
      numRuns: 2000,
      examples: [
        [[start, open(0), { type: "message_delta" }], ""],
        [[start, open(0), { type: "message_delta" }, close(1)], ""],
      ],
    },
  );
});
