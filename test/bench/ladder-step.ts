// One step of the ladder: a forwarder of straight-line code, in a process of its own, that does
// what the step's name says and everything that the steps before it do. It lacks what a gateway
// needs besides: feature checks, retries, time limits, hang-ups, backpressure and drain. So a step
// is a lower bound for the same work, and the last one is what the gateway is compared with.
//
// Arguments: the step, the provider's URL, and from the step `ledger` on a database URL.

import { hash, randomUUID } from "node:crypto";
import type { ServerResponse } from "node:http";
import { createServer, type IncomingHttpHeaders, type IncomingMessage } from "node:http";
import { create } from "@bufbuild/protobuf";
import fastify from "fastify";
import { pino } from "pino";
import { type Dispatcher, Pool } from "undici";
import { InputCategory } from "../../gen/gateway/billing/v1/billing_pb.ts";
import { Basis, Outcome } from "../../gen/gateway/billing/v1/receipt_pb.ts";
import { type Usage, UsageSchema } from "../../gen/gateway/common/v1/usage_pb.ts";
import type { Event } from "../../gen/gateway/inference/v1/event_pb.ts";
import { newRequestId } from "../../src/base/ids.ts";
import { createLog } from "../../src/base/log.ts";
import { createBilling, type Hold, type Holds } from "../../src/billing/billing.ts";
import { readCatalogFile } from "../../src/config/catalog.ts";
import type { EventEncoder } from "../../src/formats/codec.ts";
import { isObject, parseJson, parseRequest } from "../../src/formats/json.ts";
import * as native from "../../src/formats/native/native.ts";
import { type Catalog, createCatalog } from "../../src/inference/catalog.ts";
import { Counted } from "../../src/inference/counted.ts";
import { chargeAt } from "../../src/inference/endings.ts";
import { prepare } from "../../src/inference/prepare.ts";
import { estimatedTokensOf } from "../../src/inference/prompt-size.ts";
import { Reported } from "../../src/inference/reported.ts";
import { isSecret } from "../../src/keys/secret.ts";
import { connectPostgres } from "../../src/postgres/postgres.ts";
import { decide, SlidingWindow } from "../../src/rate-limits/sliding-window.ts";
import { benchCatalog } from "./catalog.ts";
import { type LadderStep, ladderSteps } from "./ladder.ts";
import { pairModel, pairPrice } from "./pairs.ts";

const [step = "", url = "", databaseUrl = ""] = process.argv.slice(2);
const names: readonly string[] = ladderSteps;
const reached = names.indexOf(step);
const has = (name: LadderStep) => reached >= ladderSteps.indexOf(name);
const [parsesJson, checks, translates] = [has("json"), has("checks"), has("cross")];
const catalog =
  step === "codecs"
    ? createCatalog(readCatalogFile(benchCatalog({ pid: 0, port: Number(new URL(url).port) })))
    : undefined;
/** The limits in time of a request, of its call to the provider, and of its body. */
const limitsMs = [1_800_000, 600_000, 10_000];

const pool = new Pool(url, { connections: 256, pipelining: 1 });
const holds = has("ledger") ? await startLedger() : undefined;
const log = pino(
  { base: null },
  pino.destination({ dest: "/dev/null", sync: false, minLength: 12_288, periodicFlush: 100 }),
);
const known = new Map<string, { keyId: string }>();
const minute = new SlidingWindow();
const never = new AbortController().signal;
const bounds = {
  input: 600,
  mostExpensiveInput: InputCategory.PLAIN,
  webSearches: 0,
  minOutput: 1_000,
  maxOutput: 1_000,
};
const providerHeaders = [
  ...["content-type", "application/json", "accept", "application/json, text/event-stream"],
  ...["user-agent", "model-gateway", "anthropic-version", "2023-06-01"],
];

async function startLedger(): Promise<Holds> {
  const billing = createBilling({
    postgres: connectPostgres(databaseUrl),
    priceOf: () => pairPrice,
    log: createLog("silent"),
  });
  await billing.start();
  return billing.holds;
}

/** One request and its answer. */
class Exchange implements Dispatcher.DispatchHandler {
  readonly #response: ServerResponse;
  readonly #startedMs = performance.now();
  readonly #isChat: boolean;
  #requestId = "";
  #keyId = "";
  #model = "";
  #hold: Hold | undefined;
  #status = 0;
  #type = "";
  #isStream = false;
  readonly #pieces: Buffer[] = [];
  #answerBytes = 0;
  #input = 0;
  #output = 0;
  /** The end of a stream, from its stop reason on. */
  #end: Buffer[] = [];
  /** The unfinished event of a stream that is translated. */
  #rest = "";
  /** Set in the step of the codecs. */
  #codecs: Codecs | undefined;

  constructor(response: ServerResponse, path: string) {
    this.#response = response;
    this.#isChat = path.includes("chat");
  }

  begin(request: IncomingMessage, body: Buffer): void {
    let [sent, path] = [body, request.url ?? "/"];
    if (checks) {
      this.#requestId = newRequestId();
      this.#keyId = authenticate(request.headers);
    }
    if (catalog) {
      if (!decide(minute, Number.MAX_SAFE_INTEGER, performance.now()).admitted)
        throw new Error("the limit is none");
      minute.add(performance.now(), 0);
      this.#codecs = new Codecs(catalog, this.#response);
      sent = this.#codecs.begin(body);
      this.#model = this.#codecs.model;
    } else if (parsesJson) {
      const parsed = JSON.parse(body.toString());
      this.#model = parsed.model;
      if (checks && !decide(minute, Number.MAX_SAFE_INTEGER, performance.now()).admitted)
        throw new Error("the limit is none");
      if (checks) minute.add(performance.now(), 0);
      parsed.model = parsed.model.endsWith("paced") ? "bench-2" : "bench";
      if (translates) {
        path = "/v1/messages";
        parsed.stream_options = undefined;
      }
      sent = Buffer.from(JSON.stringify(parsed));
    }
    const call = { method: "POST", path, headers: providerHeaders, body: sent } as const;
    if (!holds) {
      pool.dispatch(call, this);
      return;
    }
    const hold = {
      requestId: this.#requestId,
      hasNewId: true,
      payer: { accountId: "acc_1", family: "v1", keyId: "key_1" },
      model: pairModel,
      price: pairPrice,
      bounds,
      deadlineMs: 60_000,
    } as const;
    holds.place(hold, never).then(
      (placed) => {
        this.#hold = placed;
        pool.dispatch(call, this);
      },
      (error) => this.#response.destroy(error),
    );
  }

  onRequestStart(): void {}

  onResponseStart(
    _: Dispatcher.DispatchController,
    status: number,
    headers: IncomingHttpHeaders,
  ): void {
    this.#status = status;
    this.#type = String(headers["content-type"]);
    this.#isStream = this.#type.startsWith("text/event-stream");
    if (!this.#isStream) return;
    this.#response.writeHead(
      status,
      checks
        ? {
            "content-type": "text/event-stream; charset=utf-8",
            "cache-control": "no-cache, no-transform",
            "request-id": this.#requestId,
            "x-request-id": this.#requestId,
          }
        : { "content-type": this.#type },
    );
  }

  onResponseData(_: Dispatcher.DispatchController, chunk: Buffer): void {
    if (!this.#isStream) this.#pieces.push(chunk);
    else if (this.#codecs) this.#write(this.#codecs.translate(chunk));
    else if (translates) this.#translate(chunk);
    else if (checks) this.#relay(chunk);
    else this.#response.write(chunk);
  }

  #write(text: string): void {
    if (text !== "") this.#response.write(text);
  }

  /** Sends bytes on as they came; looks in them for the usage and the end, and keeps the end. */
  #relay(chunk: Buffer): void {
    let cut = this.#end.length > 0 ? 0 : chunk.length;
    if (this.#end.length === 0) {
      const end = this.#isChat
        ? chunk.lastIndexOf("data: ", chunk.indexOf('"finish_reason":"'))
        : chunk.indexOf("event: message_delta");
      if (end >= 0 && (!this.#isChat || chunk.includes('"finish_reason":"'))) cut = end;
    }
    for (let at = chunk.indexOf('"usage":{'); at >= 0; at = chunk.indexOf('"usage":{', at + 8))
      this.#readUsage(chunk.toString("latin1", at, at + 400));
    this.#answerBytes += cut;
    if (cut > 0) this.#response.write(cut < chunk.length ? chunk.subarray(0, cut) : chunk);
    if (cut < chunk.length) this.#end.push(chunk.subarray(cut));
  }

  #readUsage(text: string): void {
    const input = /"(?:input|prompt)_tokens":(\d+)/.exec(text);
    const output = /"(?:output|completion)_tokens":(\d+)/.exec(text);
    if (input) this.#input = Number(input[1]);
    if (output) this.#output = Number(output[1]);
  }

  /** Parses every native event and writes its chunk of a chat completion. */
  #translate(chunk: Buffer): void {
    const text = this.#rest + chunk.toString();
    const head = `data: {"id":"${this.#requestId}","object":"chat.completion.chunk","created":1,"model":"${this.#model}","choices":[{"index":0,"delta":`;
    const tail = `,"finish_reason":null}],"usage":null}\n\n`;
    let [out, from] = ["", 0];
    for (;;) {
      const next = text.indexOf("\n\n", from);
      if (next < 0) break;
      const event = JSON.parse(text.slice(text.indexOf("data: ", from) + 6, next));
      from = next + 2;
      switch (event.type) {
        case "message_start":
          this.#input = event.message.usage.input_tokens;
          out += `${head}{"role":"assistant"}${tail}`;
          break;
        case "content_block_delta":
          this.#answerBytes += Buffer.byteLength(event.delta.text);
          out += `${head}{"content":${JSON.stringify(event.delta.text)}}${tail}`;
          break;
        case "message_delta": {
          this.#output = event.usage.output_tokens;
          const usage = { prompt_tokens: this.#input, completion_tokens: this.#output };
          this.#end.push(
            Buffer.from(
              `${head}{},"finish_reason":"stop"}],"usage":null}\n\n${head}{}}],"usage":${JSON.stringify(usage)}}\n\ndata: [DONE]\n\n`,
            ),
          );
        }
      }
    }
    this.#rest = text.slice(from);
    if (out !== "") this.#response.write(out);
  }

  onResponseEnd(): void {
    if (this.#isStream) {
      if (!this.#hold) this.#finishStream();
      else this.#settle(() => this.#finishStream());
      return;
    }
    const body = this.#pieces.length === 1 ? this.#pieces[0] : Buffer.concat(this.#pieces);
    const codecs = this.#codecs;
    if (codecs) {
      codecs.readAnswer(body ?? Buffer.alloc(0));
      this.#settle((cost) => this.#send(codecs.encodeAnswer(), cost));
      return;
    }
    if (!parsesJson) {
      this.#send(body ?? Buffer.alloc(0), "");
      return;
    }
    const answer = JSON.parse(String(body));
    answer.model = this.#model;
    this.#input = answer.usage.input_tokens;
    this.#output = answer.usage.output_tokens;
    const send = (cost: string) => this.#send(Buffer.from(JSON.stringify(answer)), cost);
    if (!this.#hold) send("");
    else this.#settle(send);
  }

  #settle(then: (cost: string) => void): void {
    if (!holds || !this.#hold) return;
    const usage = this.#codecs
      ? this.#codecs.end()
      : create(UsageSchema, { input: this.#input, output: this.#output });
    const ending = { usage, outcome: Outcome.COMPLETED, basis: Basis.REPORTED, attempts: [] };
    holds.settle(this.#hold, ending).then(
      ({ chargedMicrocredits: amountMicrocredits }) => then(String(amountMicrocredits)),
      (error) => this.#response.destroy(error),
    );
  }

  #finishStream(): void {
    if (this.#codecs) this.#end.push(Buffer.from(this.#codecs.encodeEnd()));
    const [only] = this.#end;
    this.#response.end(this.#end.length === 1 ? only : Buffer.concat(this.#end));
    if (checks) this.#logRequest();
  }

  #send(body: Buffer, cost: string): void {
    const headers: Record<string, string | number> = {
      "content-type": checks ? "application/json" : this.#type,
      "content-length": body.length,
    };
    if (checks) {
      headers["request-id"] = this.#requestId;
      headers["x-request-id"] = this.#requestId;
      if (cost !== "") headers["x-gateway-cost-credits"] = cost;
    }
    this.#response.writeHead(this.#status, headers);
    this.#response.end(body);
    if (checks) this.#logRequest();
  }

  #logRequest(): void {
    log.info(
      {
        requestId: this.#requestId,
        method: "POST",
        route: "/v1/messages",
        status: this.#status,
        ms: Math.round((performance.now() - this.#startedMs) * 10) / 10,
        accountId: "acc_1",
        keyId: this.#keyId,
        stream: this.#isStream,
        model: this.#model,
        outcome: "COMPLETED",
        tokens: { input: this.#input, output: this.#output },
      },
      "request",
    );
  }

  onResponseError(_: Dispatcher.DispatchController, error: Error): void {
    this.#response.destroy(error);
  }
}

/**
 * What a gateway does with the content of a request besides, in straight-line code with its own
 * codecs: reads and checks it, bounds its tokens, writes it anew, and the same for the answer; with
 * its timers, and what it needs to notice that the client has left.
 */
class Codecs {
  readonly #catalog: Catalog;
  readonly #timers = limitsMs.map((ms) => setTimeout(() => this.#hangUp.abort(), ms));
  readonly #hangUp = new AbortController();
  #reported: Reported | undefined;
  readonly #counted = new Counted();
  #context = { model: "", estimatedInputTokens: 0, showCost: true };
  #events: Event[] = [];
  readonly #decoder = native.createEventDecoder(true);
  #encoder: EventEncoder | undefined;

  constructor(catalog: Catalog, response: ServerResponse) {
    this.#catalog = catalog;
    // The hold, the call and the bill each listen.
    for (let listener = 0; listener < 3; listener++)
      this.#hangUp.signal.addEventListener("abort", () => response.destroy(), { once: true });
    response.once("close", () => {
      if (!response.writableEnded) this.#hangUp.abort();
    });
  }

  get model(): string {
    return this.#context.model;
  }

  /** Reads the request. Returns that for the provider. */
  begin(body: Buffer): Buffer {
    const { value } = parseRequest(body);
    const decoded = native.decodeRequest(value, { version: "2023-06-01", beta: "" });
    const { request, target, size, maxTokens } = prepare(this.#catalog, decoded, []);
    const { id: model, contextTokens, zeroUsage } = target.model;
    const estimatedInputTokens = estimatedTokensOf(size);
    this.#context = { model, estimatedInputTokens, showCost: true };
    this.#reported = new Reported({
      countedInput: estimatedInputTokens,
      writesLiveLong: false,
      contextTokens,
      webSearches: 0,
      zeroUsage,
    });
    const stream = decoded.origin?.streamed === true;
    const options = { model: "bench", stream, foldSystem: false };
    return Buffer.from(JSON.stringify(native.encodeRequest({ ...request, maxTokens }, options)));
  }

  /** Reads events. Returns those that may be sent before the charge. */
  translate(chunk: Buffer): string {
    const events = this.#decoder.push(chunk);
    const before = this.#read(events);
    if (before < events.length) this.#events.push(...events.slice(before));
    this.#encoder ??= native.createEventEncoder(this.#context);
    return this.#encoder.encode(before < events.length ? events.slice(0, before) : events);
  }

  /** Reads a plain answer. */
  readAnswer(body: Buffer): void {
    const answer = parseJson(body);
    if (!isObject(answer)) throw new Error("not an answer");
    this.#events = native.decodeAnswer(answer);
    this.#read(this.#events);
  }

  /** The usage of the answer, which has ended. */
  end(): Usage {
    for (const timer of this.#timers) clearTimeout(timer);
    const reported = this.#reported;
    if (reported?.phase !== "complete") throw new Error("the answer has no end");
    return chargeAt("complete", { isPlain: false, reported, counted: this.#counted }).usage;
  }

  /** Returns the number of events that come before the end of the answer. */
  #read(events: readonly Event[]): number {
    let before = 0;
    for (const event of events) {
      this.#reported?.read(event);
      this.#counted.add(event);
      if (this.#reported?.phase === "running") before++;
    }
    return before;
  }

  encodeAnswer(): Buffer {
    return Buffer.from(JSON.stringify(native.encodeAnswer(this.#events, this.#context)));
  }

  /** The end of a stream. */
  encodeEnd(): string {
    return `${this.#encoder?.encode(this.#events)}${this.#encoder?.end()}`;
  }
}

function authenticate(headers: IncomingHttpHeaders): string {
  const secret = String(headers["x-api-key"] ?? headers.authorization?.slice(7));
  if (!isSecret(secret)) throw new Error("not a key");
  const digest = hash("sha256", secret, "base64");
  const key = known.get(digest) ?? { keyId: randomUUID() };
  known.set(digest, key);
  return key.keyId;
}

function answer(request: IncomingMessage, response: ServerResponse): void {
  let first: Buffer | undefined;
  let more: Buffer[] | undefined;
  request.on("data", (chunk: Buffer) => {
    if (!first) first = chunk;
    else if (more) more.push(chunk);
    else more = [first, chunk];
  });
  request.on("end", () => {
    const body = more ? Buffer.concat(more) : (first ?? Buffer.alloc(0));
    new Exchange(response, request.url ?? "").begin(request, body);
  });
}

if (has("fastify")) {
  const app = fastify({ logger: false });
  app.removeAllContentTypeParsers();
  app.addContentTypeParser("*", (_request, _payload, done) => done(null));
  for (const path of ["/v1/messages", "/v1/chat/completions"])
    app.post(path, (request, reply) => {
      reply.hijack();
      answer(request.raw, reply.raw);
    });
  await app.listen({ port: 0, host: "127.0.0.1" });
  report(app.server.address());
} else {
  const server = createServer(answer);
  server.keepAliveTimeout = 60_000;
  server.listen(0, "127.0.0.1", () => report(server.address()));
}

function report(address: ReturnType<ReturnType<typeof createServer>["address"]>): void {
  console.log(JSON.stringify({ port: typeof address === "object" ? address?.port : 0 }));
}
