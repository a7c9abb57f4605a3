// Answers of both formats, plain and streamed, over real HTTP.

import { once } from "node:events";
import { request as httpRequest } from "node:http";
import { create } from "@bufbuild/protobuf";
import { timestampFromDate } from "@bufbuild/protobuf/wkt";
import { describe, expect, test } from "vitest";
import {
  AdmissionSchema,
  type GenerateResponse,
  type Origin,
} from "../../gen/gateway/inference/v1/inference_pb.ts";
import { ApiError } from "../../src/base/errors.ts";
import type { Generate } from "../../src/contract/generation.ts";
import {
  admission,
  answerOf,
  chatBody,
  chatHeaders,
  events,
  finish,
  goodKey,
  nativeBody,
  nativeHeaders,
  play,
  post,
  postChat,
  postNative,
  receipt,
  requestIdPattern,
  sendRaw,
  start,
  startHttpServer,
  textDelta,
  textStart,
} from "../support/http-server.ts";

/** Parses a native stream, and checks the form of each event. */
function readEvents(text: string): { event: string; data: Record<string, unknown> }[] {
  expect(text.endsWith("\n\n")).toBe(true);
  return text
    .slice(0, -2)
    .split("\n\n")
    .map((one) => {
      const match = /^event: (\w+)\ndata: (.*)$/.exec(one);
      const data = JSON.parse(match?.[2] ?? "null");
      expect(data?.type).toBe(match?.[1]);
      return { event: match?.[1] ?? "", data };
    });
}

function readChunks(text: string): string[] {
  expect(text.endsWith("\n\n")).toBe(true);
  return text.slice(0, -2).split("\n\n");
}

/** Decodes a chunked body, and checks that it is well-formed and complete. */
function unchunk(chunks: string): string {
  let rest = Buffer.from(chunks);
  let body = "";
  for (;;) {
    const end = rest.indexOf("\r\n");
    const length = Number.parseInt(rest.toString("latin1", 0, end), 16);
    const next = end + 2 + length;
    expect(rest.toString("latin1", next, next + 2)).toBe("\r\n");
    if (length === 0) {
      expect(rest).toHaveLength(next + 2);
      return body;
    }
    body += rest.toString("utf8", end + 2, next);
    rest = rest.subarray(next + 2);
  }
}

describe("a plain answer", () => {
  test("has the members of the native format, the request id under both names, and its cost", async () => {
    const { url } = await startHttpServer();
    const response = await postNative(url);
    expect(response.status).toBe(200);
    expect(response.headers.get("content-type")).toBe("application/json");
    expect(response.headers.get("request-id")).toMatch(requestIdPattern);
    expect(response.headers.get("x-request-id")).toBe(response.headers.get("request-id"));
    expect(response.headers.get("x-gateway-cost-credits")).toBe("1.2345");
    expect(response.headers.get("x-gateway-max-tokens")).toBeNull();
    expect(response.headers.get("anthropic-ratelimit-requests-limit")).toBeNull();
    expect(response.headers.get("access-control-allow-origin")).toBeNull();
    expect(await response.json()).toMatchObject({
      type: "message",
      role: "assistant",
      model: "model-sonnet-4.6",
      content: [{ type: "text", text: "Hello" }],
      stop_reason: "end_turn",
      stop_sequence: null,
      usage: { input_tokens: 5, output_tokens: 2 },
    });
  });

  test("has the members of the chat format on the chat endpoint", async () => {
    const { url } = await startHttpServer();
    const response = await postChat(url);
    expect(response.status).toBe(200);
    expect(response.headers.get("content-type")).toBe("application/json");
    expect(response.headers.get("x-gateway-cost-credits")).toBe("1.2345");
    expect(await response.json()).toMatchObject({
      object: "chat.completion",
      model: "model-sonnet-4.6",
      choices: [
        { index: 0, message: { role: "assistant", content: "Hello" }, finish_reason: "stop" },
      ],
      usage: { prompt_tokens: 5, completion_tokens: 2, total_tokens: 7 },
    });
  });

  test("has headers for a reduced output limit and the state of the rate limit", async () => {
    const { url, script } = await startHttpServer();
    // Not a whole second, which would be written without its milliseconds.
    const resetsAt = new Date(Math.floor(Date.now() / 1000) * 1000 + 29_900);
    const rateLimit = { limit: 60, remaining: 59, resetsAt: timestampFromDate(resetsAt) };
    script.generate = () =>
      play([admission({ grantedMaxTokens: 40, rateLimit }), ...answerOf("x").slice(1)]);
    const native = await postNative(url);
    expect(native.headers.get("x-gateway-max-tokens")).toBe("40");
    expect(native.headers.get("anthropic-ratelimit-requests-limit")).toBe("60");
    expect(native.headers.get("anthropic-ratelimit-requests-remaining")).toBe("59");
    expect(native.headers.get("anthropic-ratelimit-requests-reset")).toBe(resetsAt.toISOString());
    const chat = await postChat(url);
    expect(chat.headers.get("x-ratelimit-limit-requests")).toBe("60");
    expect(chat.headers.get("x-ratelimit-remaining-requests")).toBe("59");
    expect(chat.headers.get("x-ratelimit-reset-requests")).toMatch(/^(29|30)s$/);
  });

  test("comes from a service call with the caller's key as Bearer and the request id of the headers", async () => {
    const { url, script } = await startHttpServer();
    let seen: Headers | undefined;
    script.generate = (_request, { headers }) => {
      seen = headers;
      return play(answerOf("x"));
    };
    const response = await postNative(url, nativeBody, {
      ...nativeHeaders,
      "x-request-id": "req_mine-12345",
    });
    expect(seen?.get("authorization")).toBe(`Bearer ${goodKey}`);
    expect(seen?.get("x-request-id")).toBe("req_mine-12345");
    expect(response.headers.get("request-id")).toBe("req_mine-12345");
    const other = await postNative(url, nativeBody, {
      ...nativeHeaders,
      "x-request-id": "not ours",
    });
    expect(other.headers.get("request-id")).toMatch(requestIdPattern);
    expect(seen?.get("x-request-id")).toBe(other.headers.get("request-id"));
  });

  test("comes from a service call with the version and the beta flags unchanged", async () => {
    const { url, script } = await startHttpServer();
    let seen: Origin | undefined;
    script.generate = (request) => {
      seen = request.origin;
      return play(answerOf("x"));
    };
    const beta = "claude-code-20250219,  effort-2025-11-24,unheard-of";
    await postNative(url, nativeBody, { ...nativeHeaders, "anthropic-beta": beta });
    expect(seen).toMatchObject({ vendorVersion: "2023-06-01", vendorBeta: beta });
  });

  test("that fails halfway is an error with its own status and no text of the answer", async () => {
    const { url, script } = await startHttpServer();
    script.generate = async function* () {
      yield* [admission(), start, textStart, textDelta("secret")];
      throw new ApiError("overloaded", { retryAfterMs: 2_500 });
    };
    const response = await postNative(url);
    expect(response.status).toBe(529);
    expect(response.headers.get("retry-after")).toBe("3");
    const text = await response.text();
    expect(JSON.parse(text)).toMatchObject({ type: "error", error: { type: "overloaded_error" } });
    expect(text).not.toContain("secret");
    expect((await postChat(url)).status).toBe(503);
  });
});

describe("a streamed answer", () => {
  test("is a sequence of whole native events", async () => {
    const { url } = await startHttpServer();
    const response = await postNative(
      url,
      { ...nativeBody, stream: true },
      { ...nativeHeaders, accept: "application/json" },
    );
    expect(response.status).toBe(200);
    expect(response.headers.get("content-type")).toBe("text/event-stream; charset=utf-8");
    expect(response.headers.get("cache-control")).toBe("no-cache, no-transform");
    expect(response.headers.get("x-accel-buffering")).toBe("no");
    expect(response.headers.get("content-encoding")).toBeNull();
    expect(response.headers.get("request-id")).toMatch(requestIdPattern);
    expect(response.headers.get("x-request-id")).toBe(response.headers.get("request-id"));
    const sent = readEvents(await response.text());
    expect(sent.map(({ event }) => event)).toEqual([
      "message_start",
      "content_block_start",
      "content_block_delta",
      "content_block_stop",
      "message_delta",
      "message_stop",
    ]);
    expect(sent[0]?.data).toMatchObject({
      message: { model: "model-sonnet-4.6", content: [], usage: { input_tokens: 5 } },
    });
  });

  test("is chunks that end with [DONE] on the chat endpoint, with the usage if requested", async () => {
    const { url } = await startHttpServer();
    const body = { ...chatBody, stream: true };
    const plain = readChunks(await (await postChat(url, body)).text());
    expect(plain.at(-1)).toBe("data: [DONE]");
    expect(plain.every((chunk) => chunk.startsWith("data: "))).toBe(true);
    expect(plain.some((chunk) => chunk.includes("prompt_tokens"))).toBe(false);
    const counted = readChunks(
      await (await postChat(url, { ...body, stream_options: { include_usage: true } })).text(),
    );
    expect(counted.at(-2)).toContain('"prompt_tokens":5');
  });

  test("has the headers of its admission", async () => {
    const { url, script } = await startHttpServer();
    const rateLimit = { limit: 9, remaining: 8 };
    script.generate = () =>
      play([admission({ grantedMaxTokens: 1, rateLimit }), ...answerOf("x").slice(1)]);
    const response = await postNative(url, { ...nativeBody, stream: true });
    expect(response.headers.get("x-gateway-max-tokens")).toBe("1");
    expect(response.headers.get("anthropic-ratelimit-requests-remaining")).toBe("8");
    await response.text();
  });

  test("that fails before its first event is an error with its own status", async () => {
    const { url, script } = await startHttpServer();
    script.generate = async function* () {
      yield* [admission(), events({ case: "ping", value: {} })];
      throw new ApiError("upstream_error");
    };
    for (const response of [
      await postNative(url, { ...nativeBody, stream: true }),
      await postChat(url, { ...chatBody, stream: true }),
    ]) {
      expect(response.status).toBe(502);
      expect(response.headers.get("content-type")).toBe("application/json");
      await response.json();
    }
  });

  test("that fails later ends with an error event, and no event of a complete answer", async () => {
    const { url, script } = await startHttpServer();
    script.generate = async function* () {
      yield* [admission(), start, textStart, textDelta("Hel")];
      throw new ApiError("upstream_error");
    };
    const native = await postNative(url, { ...nativeBody, stream: true });
    const sent = readEvents(await native.text());
    expect(sent.map(({ event }) => event)).not.toContain("message_stop");
    expect(sent.at(-1)).toMatchObject({
      event: "error",
      data: { error: { type: "api_error" }, request_id: native.headers.get("request-id") },
    });
    const chunks = readChunks(await (await postChat(url, { ...chatBody, stream: true })).text());
    expect(JSON.parse(chunks.at(-1)?.slice("data: ".length) ?? "")).toEqual({
      error: expect.objectContaining({ type: "server_error", code: "upstream_error", param: null }),
    });
    expect(chunks.join()).not.toContain("[DONE]");
  });

  describe("on a bare connection", () => {
    const streamed = (model: string) => JSON.stringify({ ...nativeBody, model, stream: true });
    const headersOf = (body: string) =>
      `Host: x\r\nX-Api-Key: ${goodKey}\r\nAnthropic-Version: 2023-06-01\r\nContent-Type: application/json\r\nContent-Length: ${Buffer.byteLength(body)}\r\n`;
    const bytes = "Grüße 🙂 — 你好";

    test("comes in HTTP chunks, also for two pipelined requests", async () => {
      const { port, script } = await startHttpServer();
      script.generate = ({ model }) => play(answerOf(`${model} ${bytes}`));
      const requestFor = (model: string, more: string) => {
        const body = streamed(model);
        return `POST /v1/messages HTTP/1.1\r\n${headersOf(body)}${more}\r\n${body}`;
      };
      const text = await sendRaw(
        port,
        requestFor("sonnet", "") + requestFor("haiku", "Connection: close\r\n"),
      );
      const answers = text.split(/(?=HTTP\/1\.1 200)/).map((one) => {
        const [head = "", ...rest] = one.split("\r\n\r\n");
        expect(head.toLowerCase()).toContain("transfer-encoding: chunked");
        return readEvents(unchunk(rest.join("\r\n\r\n")));
      });
      const texts = answers.map((one) =>
        one.map(({ data }) => Object(data.delta).text ?? "").join(""),
      );
      expect(texts).toEqual([`sonnet ${bytes}`, `haiku ${bytes}`]);
    });

    test("comes without chunks to an HTTP/1.0 client, which reads until the connection closes", async () => {
      const { port, script } = await startHttpServer();
      script.generate = () => play(answerOf(bytes));
      const body = streamed("sonnet");
      const text = await sendRaw(
        port,
        `POST /v1/messages HTTP/1.0\r\n${headersOf(body)}\r\n${body}`,
      );
      const end = text.indexOf("\r\n\r\n");
      expect(text.slice(0, end).toLowerCase()).not.toContain("transfer-encoding");
      const events = readEvents(text.slice(end + 4));
      expect(events.map(({ data }) => Object(data.delta).text ?? "").join("")).toBe(bytes);
    });
  });

  test("is sent in one write for each message of the service", async () => {
    const { port, script } = await startHttpServer();
    const step = stepper([
      admission(),
      start,
      textStart,
      textDelta("a"),
      textDelta("b"),
      finish,
      receipt(),
    ]);
    script.generate = () => step.answer;
    const request = httpRequest({
      port,
      host: "127.0.0.1",
      path: "/v1/messages",
      method: "POST",
      headers: nativeHeaders,
    });
    request.end(JSON.stringify({ ...nativeBody, stream: true }));
    step.next();
    step.next();
    const [response] = await once(request, "response");
    const chunks: string[] = [];
    response.setEncoding("utf8").on("data", (chunk: string) => chunks.push(chunk));
    for (let sent = 1; sent <= 4; sent++) {
      while (chunks.length < sent) await once(response, "data");
      expect(chunks.length).toBe(sent);
      step.next();
    }
    step.next();
    await once(response, "end");
    expect(chunks.map((chunk) => chunk.match(/event: \w+/g)?.length)).toEqual([1, 1, 1, 1, 3]);
  });
});

/** An answer that yields one message for each call of `next`. */
function stepper(messages: readonly GenerateResponse[]): {
  answer: AsyncGenerator<GenerateResponse>;
  next: () => void;
} {
  const gates = messages.map(() => Promise.withResolvers<void>());
  let at = 0;
  return {
    answer: (async function* () {
      for (const [index, message] of messages.entries()) {
        await gates[index]?.promise;
        yield message;
      }
    })(),
    next: () => gates[at++]?.resolve(),
  };
}

describe("silence of a provider", () => {
  const keepAlive = { holdMs: 30, pingMs: 20 };

  test("before the first event is filled with the status line and pings, and the answer follows complete", async () => {
    const { url, script } = await startHttpServer({}, { keepAlive });
    const gate = Promise.withResolvers<void>();
    script.generate = async function* () {
      yield admission();
      await gate.promise;
      yield* answerOf("Hello").slice(1);
    };
    const response = await postNative(url, { ...nativeBody, stream: true });
    expect(response.status).toBe(200);
    const reader = response.body?.pipeThrough(new TextDecoderStream()).getReader();
    let text = "";
    const readOn = async () => {
      const { value, done } = (await reader?.read()) ?? { done: true };
      text += value ?? "";
      return !done;
    };
    while (text.split("event: ping").length < 4) await readOn();
    gate.resolve();
    while (await readOn());
    const kinds = readEvents(text).map(({ event }) => event);
    expect(kinds.filter((kind) => kind !== "ping")[0]).toBe("message_start");
    expect(kinds.at(-1)).toBe("message_stop");
  });

  test("is filled with comments on the chat endpoint", async () => {
    const { url, script } = await startHttpServer({}, { keepAlive });
    const gate = Promise.withResolvers<void>();
    script.generate = async function* () {
      yield* [admission(), start, textStart];
      await gate.promise;
      yield* [textDelta("Hi"), finish, receipt()];
    };
    const response = await postChat(url, { ...chatBody, stream: true });
    const reader = response.body?.pipeThrough(new TextDecoderStream()).getReader();
    let text = "";
    while (!text.includes("keep-alive")) text += (await reader?.read())?.value ?? "";
    gate.resolve();
    for (let read = await reader?.read(); read && !read.done; read = await reader?.read())
      text += read.value;
    expect(text).toContain(": keep-alive\n\n");
    expect(text).not.toContain("event:");
    expect(text.endsWith("data: [DONE]\n\n")).toBe(true);
  });

  test("before the admission keeps the status line back, since the request may still be rejected", async () => {
    const { url, script } = await startHttpServer({}, { keepAlive });
    script.generate = async function* () {
      await new Promise((resolve) => setTimeout(resolve, 4 * keepAlive.holdMs));
      throw new ApiError("credits_held");
    };
    const response = await postNative(url, { ...nativeBody, stream: true });
    expect(response.status).toBe(429);
    await response.json();
  });

  test("that ends in an error after the status line ends with an error event", async () => {
    const { url, script } = await startHttpServer({}, { keepAlive });
    script.generate = async function* () {
      yield admission();
      await new Promise((resolve) => setTimeout(resolve, 4 * keepAlive.holdMs));
      throw new ApiError("credits_exhausted");
    };
    const response = await postNative(url, { ...nativeBody, stream: true });
    expect(response.status).toBe(200);
    const sent = readEvents(await response.text());
    expect(sent.at(-1)).toMatchObject({
      event: "error",
      data: { error: { type: "api_error", details: { error_code: "credits_exhausted" } } },
    });
  });
});

describe("a client that hangs up", () => {
  for (const stream of [true, false]) {
    test(`aborts the call at once, ${stream ? "during a stream" : "while it waits for a plain answer"}`, async () => {
      const { port, script } = await startHttpServer();
      const begun = Promise.withResolvers<void>();
      let isAborted = false;
      script.generate = async function* (_request, { signal }) {
        yield* [admission(), start, textStart, textDelta("Hel")];
        begun.resolve();
        await once(signal, "abort");
        isAborted = true;
        throw new ApiError("cancelled");
      };
      const request = httpRequest({
        port,
        host: "127.0.0.1",
        path: "/v1/messages",
        method: "POST",
        headers: nativeHeaders,
      });
      request.on("error", () => {});
      request.end(JSON.stringify({ ...nativeBody, stream }));
      await begun.promise;
      expect(isAborted).toBe(false);
      request.destroy();
      await expect.poll(() => isAborted).toBe(true);
    });
  }

  test("while it sends its body causes no call to a model", async () => {
    const { port, script, server } = await startHttpServer();
    const request = httpRequest({
      port,
      host: "127.0.0.1",
      path: "/v1/messages",
      method: "POST",
      headers: { ...nativeHeaders, "content-length": "1000" },
    });
    request.on("error", () => {});
    request.write('{"model":');
    while (!script.calls.includes("authenticate"))
      await new Promise((resolve) => setImmediate(resolve));
    request.destroy();
    await server.drain();
    expect(script.calls).toEqual(["authenticate"]);
  });

  test("or stops reading holds back an answer", async () => {
    let sent = 0;
    const eventsOf = ({ kind }: GenerateResponse) =>
      kind.case === "events" ? kind.value.events : [];
    const deltas = eventsOf(textDelta("x".repeat(64 * 1024)));
    const ended = Promise.withResolvers<void>();
    const generate: Generate = async ({ sink, client }) => {
      const left = once(client, "abort");
      sink.admit(create(AdmissionSchema));
      sink.write([...eventsOf(start), ...eventsOf(textStart)]);
      for (; sent < 4096 && !client.aborted; sent++)
        if (!sink.write(deltas)) await sink.drained().catch(() => undefined);
      await left;
      ended.resolve();
      throw new ApiError("cancelled");
    };
    const { port } = await startHttpServer({ generate });
    const request = httpRequest({
      port,
      host: "127.0.0.1",
      path: "/v1/messages",
      method: "POST",
      headers: nativeHeaders,
    });
    request.on("error", () => {});
    request.end(JSON.stringify({ ...nativeBody, stream: true }));
    const [response] = await once(request, "response");
    response.pause();
    for (let before = -1; before !== sent; ) {
      before = sent;
      await new Promise((resolve) => setTimeout(resolve, 100));
    }
    // The answer has 256 MB; at most the buffers of the kernel are filled.
    expect(sent).toBeLessThan(500);
    request.destroy();
    // The hang-up was reported as such, not as an error of the gateway.
    await ended.promise;
  });
});

test("base URLs with one /v1 too few or too many reach the same endpoints", async () => {
  const { url } = await startHttpServer();
  for (const path of ["/messages", "/v1/v1/messages", "/v1/messages?beta=true"]) {
    expect((await post(url, path, nativeHeaders, nativeBody)).status).toBe(200);
  }
  for (const path of ["/chat/completions", "/v1/v1/chat/completions"]) {
    expect((await post(url, path, chatHeaders, chatBody)).status).toBe(200);
  }
});

test("counting tokens returns the number and calls no billing method", async () => {
  const { url, script } = await startHttpServer();
  const body = { model: "sonnet", messages: [{ role: "user", content: "Hi" }], tools: [] };
  const response = await post(url, "/v1/messages/count_tokens?beta=true", nativeHeaders, body);
  expect(response.status).toBe(200);
  expect(await response.json()).toEqual({ input_tokens: 17 });
  expect(script.calls).toEqual(["authenticate", "countTokens"]);
});
