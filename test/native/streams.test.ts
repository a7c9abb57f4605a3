// Streams in the native format through the whole gateway: valid events for any bytes of the
// provider, and failures.

import type { JsonObject } from "@bufbuild/protobuf";
import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";
import { isObject } from "../../src/formats/json.ts";
import { ManualClock, passDuring } from "../support/clock.ts";
import {
  type GatewayWithProvider,
  readEvents,
  smallBody,
  startGatewayWithProvider,
  textOf,
} from "../support/gateway-with-provider.ts";
import { Gate } from "../support/provider.ts";
import { errorAnswer, nativeEvents, nativeStream, sseEvent } from "../support/provider-answers.ts";

let native: GatewayWithProvider;
const clock = new ManualClock({ creeps: true });
beforeAll(async () => {
  native = await startGatewayWithProvider("native", "", { clock });
});
afterAll(() => native.stop());

const streamed = { ...smallBody, stream: true };
const read = async (response: Response): Promise<JsonObject[]> => {
  expect([response.status, response.headers.get("content-type")]).toEqual([
    200,
    "text/event-stream; charset=utf-8",
  ]);
  return readEvents(await response.text());
};
const typesOf = (events: readonly JsonObject[]): string[] =>
  events.map(({ type }) => String(type).replace("content_block_", ""));
const messageOf = (events: readonly JsonObject[]): JsonObject => {
  const message = events[0]?.message;
  return isObject(message) ? message : {};
};
const startOf = (index: number, content_block: JsonObject) =>
  sseEvent("content_block_start", { index, content_block });
const deltaOf = (index: number, delta: JsonObject) =>
  sseEvent("content_block_delta", { index, delta });
const stopOf = (index: number) => sseEvent("content_block_stop", { index });
const [head, ...tail] = [nativeEvents({})[0] ?? "", ...nativeEvents({}).slice(-2)];

describe("a streamed answer", () => {
  test("starts with a complete message and the input tokens, and ends once", async () => {
    native.provider.play(nativeStream({ text: ["Hel", "lo"], usage: { input: 12, output: 7 } }));
    const events = await read(await native.post(streamed));
    expect(typesOf(events)).toEqual([
      "message_start",
      "start",
      "delta",
      "delta",
      "stop",
      "message_delta",
      "message_stop",
    ]);
    expect(events[0]).toMatchObject({
      message: {
        type: "message",
        role: "assistant",
        model: "model-haiku-4.5",
        content: [],
        stop_reason: null,
        usage: { input_tokens: 12 },
      },
    });
    expect(events.at(-2)).toMatchObject({
      delta: { stop_reason: "end_turn" },
      usage: { output_tokens: 7 },
    });
    expect(textOf(events)).toBe("Hello");
  });

  test("numbers thinking, texts and calls without gaps, and has the signature right before the end of its block", async () => {
    const call = (index: number, id: string) => [
      startOf(index, { type: "tool_use", id, name: "f", input: {} }),
      deltaOf(index, { type: "input_json_delta", partial_json: '{"a"' }),
      deltaOf(index, { type: "input_json_delta", partial_json: `:"${id}"}` }),
      stopOf(index),
    ];
    native.provider.play({
      headers: { "content-type": "text/event-stream" },
      writes: [
        head,
        startOf(0, { type: "thinking", thinking: "", signature: "" }),
        deltaOf(0, { type: "thinking_delta", thinking: "hm", estimated_tokens: 3 }),
        deltaOf(0, { type: "signature_delta", signature: "c2ln" }),
        stopOf(0),
        startOf(1, { type: "text", text: "" }),
        deltaOf(1, { type: "text_delta", text: "x" }),
        stopOf(1),
        ...call(2, "toolu_1"),
        ...call(3, "toolu_2"),
        ...tail,
      ],
    });
    const events = await read(await native.post(streamed));
    const starts = events
      .filter(({ type }) => type === "content_block_start")
      .map(({ index }) => index);
    expect(starts).toEqual([0, 1, 2, 3]);
    const indices = events.flatMap(({ index }) => (typeof index === "number" ? [index] : []));
    expect(indices).toEqual(indices.toSorted());
    expect(events[2]?.delta).toEqual({
      type: "thinking_delta",
      thinking: "hm",
      estimated_tokens: 3,
    });
    expect(events[3]?.delta).toEqual({ type: "signature_delta", signature: "c2ln" });
    expect(events[4]).toEqual({ type: "content_block_stop", index: 0 });
  });

  test("whose provider reports its usage only at the end starts with the estimate and ends with the report", async () => {
    native.provider.play({
      headers: { "content-type": "text/event-stream" },
      writes: [
        sseEvent("message_start", {
          message: { id: "msg_1", type: "message", role: "assistant", content: [], model: "m" },
        }),
        startOf(0, { type: "text", text: "" }),
        deltaOf(0, { type: "text_delta", text: "x" }),
        stopOf(0),
        sseEvent("message_delta", {
          delta: { stop_reason: "end_turn" },
          usage: { input_tokens: 9, output_tokens: 4 },
        }),
        sseEvent("message_stop"),
      ],
    });
    const events = await read(await native.post(streamed));
    const { usage, stop_reason } = messageOf(events);
    expect(Object(usage).input_tokens).toBeGreaterThan(0);
    expect([Object(usage).output_tokens, stop_reason]).toEqual([0, null]);
    expect(events.at(-2)?.usage).toEqual({ input_tokens: 9, output_tokens: 4 });
  });

  test("relays the provider's unknown events, unknown deltas and pings", async () => {
    const odd = { type: "newest_delta", value: [1, { a: null }] };
    native.provider.play({
      headers: { "content-type": "text/event-stream" },
      writes: [
        head,
        sseEvent("ping"),
        startOf(0, { type: "newest_block", a: 1 }),
        deltaOf(0, odd),
        stopOf(0),
        sseEvent("newest_event", { b: [2] }),
        ...tail,
      ],
    });
    const events = await read(await native.post(streamed));
    expect(typesOf(events)).toEqual([
      "message_start",
      "ping",
      "start",
      "delta",
      "stop",
      "newest_event",
      "message_delta",
      "message_stop",
    ]);
    expect(events[2]?.content_block).toEqual({ type: "newest_block", a: 1 });
    expect(events[3]?.delta).toEqual(odd);
    expect(events[5]).toEqual({ type: "newest_event", b: [2] });
  });
});

describe("the bytes of the provider", () => {
  const text = "日本語 😀 é\u2028x\n\ny data: z\n\nevent: error\n\n\u0085";
  const writes = nativeEvents({ text: [text, "😀"] });

  test.each([
    ["one at a time", { writes, splitBytes: 1 }],
    ["in threes, which cut every longer character", { writes, splitBytes: 3 }],
    ["in one piece", { writes: [writes.join("")] }],
    [
      "with CR LF",
      { writes: writes.map((event) => event.replaceAll("\n", "\r\n")), splitBytes: 7 },
    ],
    [
      "with CR alone",
      { writes: writes.map((event) => event.replaceAll("\n", "\r")), splitBytes: 5 },
    ],
  ])("%s give the client the same text", async (_, script) => {
    native.provider.play({ headers: { "content-type": "text/event-stream" }, ...script });
    const response = await native.post(streamed);
    const body = await response.text();
    expect(textOf(readEvents(body))).toBe(`${text}😀`);
    expect(body).not.toMatch(/[\u2028\u2029\u0085\ufffd]/);
  });
});

describe("a provider that fails", () => {
  test("during its answer ends the stream with an error, without message_stop", async () => {
    native.provider.play({
      ...nativeStream(),
      writes: nativeEvents({ text: ["a", "b", "c"] }).slice(0, 4),
      end: "reset",
    });
    const events = await read(await native.post(streamed));
    expect(typesOf(events)).toEqual(["message_start", "start", "delta", "delta", "error"]);
    expect(events.at(-1)).toMatchObject({
      error: { type: "api_error" },
      request_id: expect.stringMatching(/^req_/),
    });
  });

  test("with its own error event is reported with the type of that event", async () => {
    const error = { type: "overloaded_error", message: "Overloaded" };
    native.provider.play({
      ...nativeStream(),
      writes: [...nativeEvents({ text: ["a"] }).slice(0, 3), sseEvent("error", { error })],
    });
    const events = await read(await native.post(streamed));
    expect(events.at(-1)).toMatchObject({ type: "error", error: { type: "overloaded_error" } });
  });

  test("that rejects the request is reported in its own words", async () => {
    native.provider.always(
      errorAnswer(
        400,
        "invalid_request_error",
        "messages.1.content.0: `thinking` blocks cannot be modified.",
      ),
    );
    const response = await native.post(smallBody);
    expect(response.status).toBe(400);
    expect(await response.json()).toMatchObject({
      error: {
        type: "invalid_request_error",
        message: "messages.1.content.0: `thinking` blocks cannot be modified.",
      },
      request_id: response.headers.get("request-id"),
    });
  });

  test("before its first event is reported with a status and JSON", async () => {
    // A gateway of its own: after a `retry-after`, a gateway avoids that provider for as long.
    await using stack = new AsyncDisposableStack();
    const own = stack.adopt(await startGatewayWithProvider("native"), (one) => one.stop());
    own.provider.always(
      errorAnswer(529, "overloaded_error", "Overloaded", { headers: { "retry-after": "7" } }),
    );
    const response = await own.post(streamed);
    expect([response.status, response.headers.get("retry-after")]).toEqual([529, "7"]);
    expect(response.headers.get("content-type")).toMatch(/^application\/json/);
    expect(await response.json()).toMatchObject({
      type: "error",
      error: { type: "overloaded_error" },
    });
  });
});

describe("a client that disconnects", () => {
  test("during the answer stops the provider and pays once for the part that was produced", async () => {
    const { secret, keyId } = await native.keyWith({});
    const gate = new Gate();
    const events = nativeEvents({ text: ["Hello"], usage: { input: 12, output: 500 } });
    native.provider.play({
      ...nativeStream(),
      writes: [...events.slice(0, 3), gate, ...events.slice(3)],
    });
    const leaving = new AbortController();
    const next = native.provider.received(native.provider.requests.length + 1);
    const response = await native.post(streamed, {
      headers: { "x-api-key": secret },
      signal: leaving.signal,
    });
    const reader = response.body?.getReader();
    let seen = "";
    while (!seen.includes("Hello")) {
      const read = await reader?.read();
      if (!read?.value) throw new Error(`the stream ended: ${seen}`);
      seen += Buffer.from(read.value).toString();
    }
    leaving.abort();
    expect((await (await next).over).by).toBe("client");

    const { core, call } = native.gateway.admin;
    const charged = await vi.waitFor(async () => {
      const { charges } = await core.billing.listCharges(
        { accountId: native.gateway.accountId },
        call,
      );
      const mine = charges.filter((charge) => charge.keyId === keyId);
      expect(mine.length).toBe(1);
      return mine[0];
    });
    expect(charged?.usage).toMatchObject({ input: 12 });
    expect(charged?.usage?.output).toBeGreaterThan(0);
    expect(charged?.usage?.output).toBeLessThan(500);
  });

  test("before the answer starts pays for input at most", async () => {
    const { secret, keyId } = await native.keyWith({});
    const before = new Gate();
    native.provider.play(nativeStream({ text: ["never"] }, { before }));
    const leaving = new AbortController();
    const next = native.provider.received(native.provider.requests.length + 1);
    const response = native.post(streamed, {
      headers: { "x-api-key": secret },
      signal: leaving.signal,
    });
    const received = await next;
    leaving.abort();
    await expect(response).rejects.toThrow();
    // The gateway waits two seconds for the usage.
    const over = await passDuring(() => clock.endPause(2_000), received.over);
    expect(over.by).toBe("client");

    const { core, call } = native.gateway.admin;
    await vi.waitFor(async () => {
      const { charges } = await core.billing.listCharges(
        { accountId: native.gateway.accountId },
        call,
      );
      const mine = charges.filter((charge) => charge.keyId === keyId);
      expect(mine.map((charge) => charge.usage?.output)).toEqual([0]);
    });
  });
});
