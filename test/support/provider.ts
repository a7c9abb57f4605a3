// A model provider made of scripts: a real HTTP server on the loopback that plays any answer, in
// either format, with the timing, splits and faults that a test asks for, and remembers what it was
// sent.
//
//   const provider = await startProvider();
//   provider.play(nativeStream({ text: ["Hel", "lo"] }));           // answers the next request
//   provider.always(nativeStream({ text: ["Hello"] }));             // answers all others
//   const catalog = catalogFor({ real: { kind: "anthropic", url: provider.url } });
//   …
//   provider.requests[0]?.body                                      // what it received
//   await provider.stop();

import { once } from "node:events";
import {
  createServer,
  type IncomingHttpHeaders,
  type IncomingMessage,
  type ServerResponse,
} from "node:http";
import type { AddressInfo, Socket } from "node:net";
import { setImmediate, setTimeout as sleep } from "node:timers/promises";
import { gunzipSync } from "node:zlib";
import type { JsonObject, JsonValue } from "@bufbuild/protobuf";

/** One answer. */
export type Script = {
  /** 200 unless said. */
  readonly status?: number;
  readonly headers?: Readonly<Record<string, string>>;
  /**
   * What is written, in this order. A text or bytes is one write of its own; the head goes out with
   * the first.
   */
  readonly writes?: readonly Write[];
  /**
   * How it ends after the last write: in good order (the default), by a reset connection, or not at
   * all.
   */
  readonly end?: "good" | "reset" | "hang";
  /** Cuts all writes together into pieces of so many bytes, each a write of its own. */
  readonly splitBytes?: number;
  /** Pause before each write but the first. */
  readonly pauseMs?: number;
  /** Holds the head back until the gate opens. */
  readonly before?: Gate;
};

/** Text or bytes to write, a gate to wait at, or a pause. */
export type Write = string | Uint8Array | Gate | { readonly pauseMs: number };

/** A place in a script where it stops until the test lets it go on. */
export class Gate {
  readonly #reached = Promise.withResolvers<void>();
  readonly #opened = Promise.withResolvers<void>();

  /** Resolves when the script has come here. */
  get reached(): Promise<void> {
    return this.#reached.promise;
  }

  open(): void {
    this.#opened.resolve();
  }

  /** For the script. */
  pass(): Promise<void> {
    this.#reached.resolve();
    return this.#opened.promise;
  }
}

/** A request that the provider received, and how its answer goes. */
export type ReceivedRequest = {
  readonly method: string;
  /** With query. */
  readonly path: string;
  readonly headers: IncomingHttpHeaders;
  readonly bodyText: string;
  /** The body as JSON object; empty where it was none. */
  readonly body: JsonObject;
  /** Bytes of the answer that the operating system has taken, head included. */
  bytesTaken(): number;
  /** Resolves when the answer is over, whoever ended it. */
  readonly over: Promise<{ by: "provider" | "client" }>;
};

export type ScriptedProvider = {
  /**
   * `http://127.0.0.1:port`. A native provider's base_url; a chat provider's is this plus `/v1`.
   */
  readonly url: string;
  readonly port: number;
  /** Every request received, oldest first. */
  readonly requests: readonly ReceivedRequest[];
  /** Queues scripts: each answers one request. A function may look at the request. */
  play(...scripts: (Script | Choose)[]): void;
  /** Answers every request that finds no queued script. Until it is set, those get status 500. */
  always(script: Script | Choose): void;
  /** The next request to come, or `count` of them in all. */
  received(count?: number): Promise<ReceivedRequest>;
  /** Figures since the start. */
  readonly served: { completed: number; clientGone: number; bytes: number };
  /** Connections that are open at this moment. */
  connections(): Promise<number>;
  /** Closes everything at once. */
  stop(): Promise<void>;
};

export type Choose = (request: ReceivedRequest) => Script;

/** Starts a provider on a free port of the loopback. */
export async function startProvider(): Promise<ScriptedProvider> {
  const requests: ReceivedRequest[] = [];
  const queue: (Script | Choose)[] = [];
  const waiting: { count: number; resolve: (request: ReceivedRequest) => void }[] = [];
  const served = { completed: 0, clientGone: 0, bytes: 0 };
  let otherwise: Script | Choose = errorAnswer(500, "api_error", "no script");

  const server = createServer((message, response) => {
    receive(message, response)
      .then(async (request) => {
        requests.push(request);
        for (const waiter of waiting.filter(({ count }) => count <= requests.length)) {
          waiting.splice(waiting.indexOf(waiter), 1);
          waiter.resolve(request);
        }
        const script = queue.shift() ?? otherwise;
        request.over.then(
          ({ by }) => {
            served[by === "client" ? "clientGone" : "completed"]++;
            served.bytes += request.bytesTaken();
          },
          () => {},
        );
        await perform(typeof script === "function" ? script(request) : script, response);
      })
      .catch(() => response.destroy());
  });
  server.keepAliveTimeout = 60_000;
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const port = portOf(server.address());

  return {
    url: `http://127.0.0.1:${port}`,
    port,
    requests,
    served,
    play: (...scripts) => queue.push(...scripts),
    always: (script) => {
      otherwise = script;
    },
    received: (count = requests.length + 1) => {
      const already = requests[count - 1];
      if (already !== undefined) return Promise.resolve(already);
      return new Promise((resolve) => waiting.push({ count, resolve }));
    },
    connections: () =>
      new Promise((resolve, reject) =>
        server.getConnections((e, n) => (e ? reject(e) : resolve(n))),
      ),
    stop: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  };
}

function portOf(address: AddressInfo | string | null): number {
  if (address === null || typeof address === "string") throw new Error("no port");
  return address.port;
}

async function receive(
  message: IncomingMessage,
  response: ServerResponse,
): Promise<ReceivedRequest> {
  const pieces: Buffer[] = [];
  for await (const piece of message) pieces.push(piece);
  const bytes = Buffer.concat(pieces);
  const bodyText = (
    message.headers["content-encoding"] === "gzip" ? gunzipSync(bytes) : bytes
  ).toString();
  const socket: Socket = message.socket;
  const takenBefore = socket.bytesWritten;
  const over = new Promise<{ by: "provider" | "client" }>((resolve) => {
    response.once("close", () =>
      resolve({
        by: response.writableFinished || response.destroyed === false ? "provider" : "client",
      }),
    );
  });
  return {
    method: message.method ?? "",
    path: message.url ?? "",
    headers: message.headers,
    bodyText,
    body: parseObject(bodyText),
    bytesTaken: () => socket.bytesWritten - takenBefore - socket.writableLength,
    over,
  };
}

function parseObject(text: string): JsonObject {
  try {
    const value: JsonValue = JSON.parse(text);
    return typeof value === "object" && value !== null && !Array.isArray(value) ? value : {};
  } catch {
    return {};
  }
}

async function perform(script: Script, response: ServerResponse): Promise<void> {
  const { status = 200, headers = {}, end = "good", pauseMs = 0 } = script;
  const gone = once(response, "close");
  const untilGone = (wait: Promise<unknown>) => Promise.race([wait, gone]);
  if (script.before !== undefined) await untilGone(script.before.pass());
  response.socket?.setNoDelay(true);
  let isFirst = true;
  for (const write of splitWrites(script.writes ?? [], script.splitBytes)) {
    if (response.closed || response.destroyed) return;
    if (write instanceof Gate) {
      if (isFirst) response.writeHead(status, headers).flushHeaders();
      isFirst = false;
      await untilGone(write.pass());
      continue;
    }
    if (typeof write === "object" && "pauseMs" in write) {
      await untilGone(sleep(write.pauseMs));
      continue;
    }
    if (isFirst) response.writeHead(status, headers);
    else if (pauseMs > 0) await untilGone(sleep(pauseMs));
    isFirst = false;
    if (!response.write(write)) await untilGone(once(response, "drain"));
  }
  if (response.closed || response.destroyed) return;
  if (isFirst) response.writeHead(status, headers);
  if (end === "good") response.end();
  else if (end === "hang") response.flushHeaders();
  else await reset(response);
}

// A reader that learns of the reset drops what it has not read yet. One in this process gets its
// turns first; for one in another process, end the writes with a gate, and open it when the reader
// has shown what it read.
async function reset(response: ServerResponse): Promise<void> {
  response.flushHeaders();
  for (let turn = 0; turn < 5; turn++) await setImmediate();
  response.socket?.resetAndDestroy();
}

function* splitWrites(writes: readonly Write[], splitBytes: number | undefined): Generator<Write> {
  for (const write of writes) {
    if (splitBytes === undefined || (typeof write !== "string" && !(write instanceof Uint8Array))) {
      yield write;
      continue;
    }
    const bytes = typeof write === "string" ? Buffer.from(write) : write;
    for (let at = 0; at < bytes.length; at += splitBytes) yield bytes.subarray(at, at + splitBytes);
  }
}

/** What an answer says, for either format. */
export type AnswerContent = {
  readonly id?: string;
  readonly model?: string;
  /** Pieces of the text, one delta each. */
  readonly text?: readonly string[];
  readonly thinking?: { readonly pieces: readonly string[]; readonly signature?: string };
  /** Pieces of the arguments' JSON text, one delta each. */
  readonly tool?: {
    readonly id?: string;
    readonly name: string;
    readonly input: readonly string[];
  };
  readonly stopReason?: string;
  /** Native usage; the other format's is computed from it. */
  readonly usage?: {
    readonly input?: number;
    readonly output?: number;
    readonly cacheRead?: number;
    readonly cacheWrite?: number;
    readonly thinking?: number;
  };
  /** Leaves the usage out. */
  readonly noUsage?: boolean;
};

const sse = { "content-type": "text/event-stream; charset=utf-8", "cache-control": "no-cache" };
const json = { "content-type": "application/json" };

/** A streamed answer in the native format: one write per event. */
export function nativeStream(content: AnswerContent = {}, more: Script = {}): Script {
  return { headers: sse, writes: nativeEvents(content), ...more };
}

/** A plain answer in the native format. */
export function nativeAnswer(content: AnswerContent = {}, more: Script = {}): Script {
  const message = {
    ...nativeHead(content),
    content: nativeBlocks(content).map(({ whole }) => whole),
    stop_reason: stopReasonOf(content),
    ...(content.noUsage !== true && { usage: nativeUsage(content) }),
  };
  return { headers: json, writes: [JSON.stringify(message)], ...more };
}

/** A streamed answer of a chat provider: one write per chunk. */
export function chatStream(content: AnswerContent = {}, more: Script = {}): Script {
  return { headers: sse, writes: chatChunks(content), ...more };
}

/** A plain answer of a chat provider. */
export function chatAnswer(content: AnswerContent = {}, more: Script = {}): Script {
  const { text, thinking, tool } = content;
  const call = tool && {
    id: tool.id ?? "call_1",
    type: "function",
    function: { name: tool.name, arguments: tool.input.join("") },
  };
  const completion = {
    ...chatHead(content, "chat.completion"),
    choices: [
      {
        index: 0,
        message: {
          role: "assistant",
          content: text?.join("") ?? null,
          ...(thinking && { reasoning_content: thinking.pieces.join("") }),
          ...(call && { tool_calls: [call] }),
        },
        finish_reason: finishReasonOf(content),
      },
    ],
    ...(content.noUsage !== true && { usage: chatUsage(content) }),
  };
  return { headers: json, writes: [JSON.stringify(completion)], ...more };
}

/** An answer with an error status, in the native envelope. */
export function errorAnswer(
  status: number,
  type: string,
  message: string,
  more: Script = {},
): Script {
  return {
    status,
    headers: { ...json, ...more.headers },
    writes: [JSON.stringify({ type: "error", error: { type, message } })],
  };
}

/** An answer with an error status, as chat providers write it. */
export function chatErrorAnswer(
  status: number,
  code: string | null,
  message: string,
  more: Script = {},
): Script {
  const error = { message, type: "invalid_request_error", param: null, code };
  return { status, headers: { ...json, ...more.headers }, writes: [JSON.stringify({ error })] };
}

/** One event as it stands on the wire. */
export function sseEvent(type: string, data: JsonObject = {}): string {
  return `event: ${type}\ndata: ${JSON.stringify({ type, ...data })}\n\n`;
}

/** The events of a native stream. */
export function nativeEvents(content: AnswerContent = {}): string[] {
  const usage = content.noUsage ? {} : { usage: { ...nativeUsage(content), output_tokens: 1 } };
  const message = { ...nativeHead(content), content: [], stop_reason: null, ...usage };
  const blocks = nativeBlocks(content).flatMap(({ start, deltas }, index) => [
    sseEvent("content_block_start", { index, content_block: start }),
    ...deltas.map((delta) => sseEvent("content_block_delta", { index, delta })),
    sseEvent("content_block_stop", { index }),
  ]);
  return [
    sseEvent("message_start", { message }),
    ...blocks,
    sseEvent("message_delta", {
      delta: { stop_reason: stopReasonOf(content), stop_sequence: null },
      ...(!content.noUsage && { usage: outputUsage(content) }),
    }),
    sseEvent("message_stop"),
  ];
}

/** The chunks of a chat stream, `[DONE]` included. */
export function chatChunks(content: AnswerContent = {}): string[] {
  const { text = [], thinking, tool } = content;
  const head = chatHead(content, "chat.completion.chunk");
  const chunk = (delta: JsonObject, finish_reason: string | null = null) =>
    `data: ${JSON.stringify({ ...head, choices: [{ index: 0, delta, finish_reason }] })}\n\n`;
  const call = (members: JsonObject) => chunk({ tool_calls: [{ index: 0, ...members }] });
  return [
    chunk({ role: "assistant" }),
    ...(thinking?.pieces ?? []).map((piece) => chunk({ reasoning_content: piece })),
    ...text.map((piece) => chunk({ content: piece })),
    ...(tool
      ? [
          call({
            id: tool.id ?? "call_1",
            type: "function",
            function: { name: tool.name, arguments: "" },
          }),
        ]
      : []),
    ...(tool?.input ?? []).map((piece) => call({ function: { arguments: piece } })),
    chunk({}, finishReasonOf(content)),
    ...(content.noUsage
      ? []
      : [`data: ${JSON.stringify({ ...head, choices: [], usage: chatUsage(content) })}\n\n`]),
    "data: [DONE]\n\n",
  ];
}

function nativeHead({
  id = "msg_scripted000000000000001",
  model = "scripted-1",
}: AnswerContent): JsonObject {
  return { id, type: "message", role: "assistant", model, stop_sequence: null };
}

function chatHead(
  { id = "chatcmpl-scripted", model = "scripted-1" }: AnswerContent,
  object: string,
): JsonObject {
  return { id, object, created: 1_764_000_000, model };
}

type WireBlock = { start: JsonObject; deltas: JsonObject[]; whole: JsonObject };

function nativeBlocks({ text, thinking, tool }: AnswerContent): WireBlock[] {
  const blocks: WireBlock[] = [];
  if (thinking !== undefined) {
    const { pieces, signature = "c2lnbmF0dXJl" } = thinking;
    blocks.push({
      start: { type: "thinking", thinking: "", signature: "" },
      deltas: [
        ...pieces.map((piece) => ({ type: "thinking_delta", thinking: piece })),
        { type: "signature_delta", signature },
      ],
      whole: { type: "thinking", thinking: pieces.join(""), signature },
    });
  }
  if (text !== undefined) {
    blocks.push({
      start: { type: "text", text: "" },
      deltas: text.map((piece) => ({ type: "text_delta", text: piece })),
      whole: { type: "text", text: text.join("") },
    });
  }
  if (tool !== undefined) {
    const head = {
      type: "tool_use",
      id: tool.id ?? "toolu_scripted00000000000001",
      name: tool.name,
    };
    blocks.push({
      start: { ...head, input: {} },
      deltas: tool.input.map((piece) => ({ type: "input_json_delta", partial_json: piece })),
      whole: { ...head, input: parseObject(tool.input.join("")) },
    });
  }
  return blocks;
}

function nativeUsage({ usage = {} }: AnswerContent) {
  const { input = 10, output = 5, cacheRead = 0, cacheWrite = 0, thinking } = usage;
  return {
    input_tokens: input,
    cache_creation_input_tokens: cacheWrite,
    cache_read_input_tokens: cacheRead,
    output_tokens: output,
    ...(thinking !== undefined && { output_tokens_details: { thinking_tokens: thinking } }),
  };
}

function outputUsage(content: AnswerContent): JsonObject {
  const { output_tokens, output_tokens_details } = nativeUsage(content);
  return { output_tokens, ...(output_tokens_details && { output_tokens_details }) };
}

function chatUsage({ usage = {} }: AnswerContent): JsonObject {
  const { input = 10, output = 5, cacheRead = 0, cacheWrite = 0, thinking = 0 } = usage;
  const prompt = input + cacheRead + cacheWrite;
  return {
    prompt_tokens: prompt,
    completion_tokens: output,
    total_tokens: prompt + output,
    prompt_tokens_details: { cached_tokens: cacheRead, cache_write_tokens: cacheWrite },
    completion_tokens_details: { reasoning_tokens: thinking },
  };
}

function stopReasonOf({ stopReason, tool }: AnswerContent): string {
  return stopReason ?? (tool === undefined ? "end_turn" : "tool_use");
}

function finishReasonOf(content: AnswerContent): string {
  const reason = stopReasonOf(content);
  return reason === "tool_use" ? "tool_calls" : reason === "max_tokens" ? "length" : "stop";
}

/** An provider of `catalogFor`. `more` is YAML in flow style, as `idle_ms: 100`. */
export type ProviderForTest = {
  readonly kind: "anthropic" | "openai";
  readonly url: string;
  readonly more?: string;
};

/**
 * The text of a configuration file: the three models of the product, led to these providers.
 * Without `routes`, every model tries them in the order given, each in a group of its own, under
 * the name `provider-model`. `pace` is the simulated provider's, if it is one.
 */
export function catalogFor(
  providers: Readonly<Record<string, ProviderForTest | "simulated">>,
  routes?: string,
): string {
  const lines = Object.entries(providers).map(([name, provider]) => {
    if (provider === "simulated")
      return `  ${name}: { kind: simulated, first_token_ms: 0, token_ms: 0 }`;
    const base = provider.kind === "openai" ? `${provider.url}/v1` : provider.url;
    const more = provider.more === undefined ? "" : `, ${provider.more}`;
    return `  ${name}: { kind: ${provider.kind}, base_url: ${JSON.stringify(base)}${more} }`;
  });
  const groups = Object.keys(providers).map(
    (name) => `[{ provider: ${name}, model: provider-model }]`,
  );
  const model = (
    id: string,
    tier: string,
    thinking: string,
    context: number,
    output: number,
    price: string,
  ) =>
    `  - { id: ${id}, display_name: ${tier}, tier: ${tier}, created_at: 2026-02-05T00:00:00Z, context_tokens: ${context}, ` +
    `max_output_tokens: ${output}, thinking: ${thinking}, price: ${price}, routes: ${routes ?? `[${groups.join(", ")}]`} }`;
  return [
    "price_multipliers: { cache_write_5m: 1.25, cache_write_1h: 2, cache_read: 0.1, thinking: 1 }",
    "models:",
    model(
      "model-opus-4.6",
      "opus",
      "adaptive",
      1_000_000,
      128_000,
      "{ input: 3.50, output: 17.50 }",
    ),
    model(
      "model-sonnet-4.6",
      "sonnet",
      "adaptive",
      200_000,
      64_000,
      "{ input: 2.10, output: 10.50 }",
    ),
    model("model-haiku-4.5", "haiku", "budget", 200_000, 64_000, "{ input: 0.70, output: 3.50 }"),
    "aliases: { opus: model-opus-4.6, sonnet: model-sonnet-4.6, haiku: model-haiku-4.5 }",
    "providers:",
    ...lines,
    "",
  ].join("\n");
}
