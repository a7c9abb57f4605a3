// The HTTP listener on a real port, over services that play a script.

import { once } from "node:events";
import { connect } from "node:net";
import { create, type MessageInitShape } from "@bufbuild/protobuf";
import { timestampFromDate } from "@bufbuild/protobuf/wkt";
import type { CallOptions } from "@connectrpc/connect";
import { onTestFinished } from "vitest";
import { AlertsService } from "../../gen/gateway/alerts/v1/alerts_pb.ts";
import { GetPoolsResponseSchema } from "../../gen/gateway/billing/v1/billing_pb.ts";
import { type Receipt, ReceiptSchema } from "../../gen/gateway/billing/v1/receipt_pb.ts";
import { Family } from "../../gen/gateway/common/v1/family_pb.ts";
import type { EventSchema } from "../../gen/gateway/inference/v1/event_pb.ts";
import {
  type AdmissionSchema,
  CountTokensResponseSchema,
  type GenerateRequest,
  type GenerateResponse,
  GenerateResponseSchema,
  InferenceService,
  ListModelsResponseSchema,
  type ModelSchema,
} from "../../gen/gateway/inference/v1/inference_pb.ts";
import { AuthenticateResponseSchema } from "../../gen/gateway/keys/v1/keys_pb.ts";
import { ApiError } from "../../src/base/errors.ts";
import { createLog } from "../../src/base/log.ts";
import {
  type ClientOf,
  type Core,
  implement,
  type Methods,
  serviceTypes,
} from "../../src/contract/contract.ts";
import { createIdentifyCaller, type FailedCredentials } from "../../src/http/authenticate.ts";
import { createHttpServer, type HttpServer, type HttpServerParts } from "../../src/http/http.ts";
import { defaultLimits } from "./limits.ts";

export const goodKey = "sk-gw2-1good";
export const requestIdPattern = /^req_[0-9A-Za-z_-]{8,64}$/;

type EventInit = MessageInitShape<typeof EventSchema>["kind"];

/** One message of a scripted answer: the events of one read. */
export function events(...kinds: NonNullable<EventInit>[]): GenerateResponse {
  return create(GenerateResponseSchema, {
    kind: { case: "events", value: { events: kinds.map((kind) => ({ kind })) } },
  });
}

export function admission(init: MessageInitShape<typeof AdmissionSchema> = {}): GenerateResponse {
  const value = {
    requestId: "req_scripted",
    model: "model-sonnet-4.6",
    grantedMaxTokens: 100,
    requestedMaxTokens: 100,
    estimatedInputTokens: 3,
    ...init,
  };
  return create(GenerateResponseSchema, { kind: { case: "admission", value } });
}

export function receipt(init: MessageInitShape<typeof ReceiptSchema> = {}): GenerateResponse {
  const value = { chargedMicrocredits: 1_234_500n, ...init };
  return create(GenerateResponseSchema, { kind: { case: "receipt", value } });
}

export const start = events({
  case: "messageStart",
  value: { id: "msg_scripted", model: "theirs", usage: { inputTokens: 5, outputTokens: 0 } },
});
export const textStart = events({
  case: "blockStart",
  value: { index: 0, block: { kind: { case: "text", value: { text: "" } } } },
});
export const textDelta = (text: string) =>
  events({ case: "blockDelta", value: { index: 0, kind: { case: "text", value: text } } });
export const finish = events(
  { case: "blockStop", value: { index: 0 } },
  { case: "messageDelta", value: { stopReason: "end_turn", usage: { outputTokens: 2 } } },
  { case: "messageStop", value: {} },
);

/** A complete answer with this text. */
export const answerOf = (text: string): GenerateResponse[] => [
  admission(),
  start,
  textStart,
  textDelta(text),
  finish,
  receipt(),
];

/** Any method of any service. */
type AnyMethod = (request: never, options: Options) => unknown;

/** The answers of the services, and a record of the calls that they received. */
export type ScriptedServices = {
  /** Plays one answer. It may throw an `ApiError` at any point. */
  generate: (request: GenerateRequest, call: Options) => AsyncIterable<GenerateResponse>;
  models: MessageInitShape<typeof ModelSchema>[];
  receipts: Map<string, Receipt>;
  /** Keys that authenticate. */
  keys: Set<string>;
  /** Names of the methods that were called, in order. */
  calls: string[];
  /** Replacements of methods, by name. */
  instead: Map<string, AnyMethod>;
};

export async function* play(
  messages: readonly GenerateResponse[],
): AsyncGenerator<GenerateResponse> {
  yield* messages;
}

function client<S extends Methods>(
  service: S,
  methods: Record<string, AnyMethod>,
  { calls, instead }: ScriptedServices,
): ClientOf<S> {
  return implement<ClientOf<S>>(service, (desc) => (request: never, options: CallOptions) => {
    calls.push(desc.localName);
    const method = instead.get(desc.localName) ?? methods[desc.localName];
    if (!method) throw new Error(`unexpected call of ${desc.localName}`);
    return method(request, {
      ...options,
      headers: new Headers(options.headers),
      signal: options.signal ?? new AbortController().signal,
    });
  });
}

type Options = CallOptions & { headers: Headers; signal: AbortSignal };

function scriptedCore(script: ScriptedServices): Core {
  return {
    people: client(serviceTypes.people, {}, script),
    payments: client(serviceTypes.payments, {}, script),
    alerts: client(AlertsService, {}, script),
    operations: client(serviceTypes.operations, {}, script),
    keys: client(
      serviceTypes.keys,
      {
        authenticate: async ({ includeUsage }: { includeUsage: boolean }, { headers }: Options) => {
          const secret = headers.get("authorization")?.slice("Bearer ".length) ?? "";
          if (secret.startsWith("sk-gw2-1revoked")) throw new ApiError("revoked_key");
          if (!script.keys.has(secret)) throw new ApiError("invalid_key");
          return create(AuthenticateResponseSchema, {
            secret: { secretId: "sec_1" },
            key: {
              keyId: "key_1",
              accountId: "acc_1",
              family: Family.V1,
              ...(includeUsage && {
                monthSpentMicrocredits: 2_500_000n,
                monthHeldMicrocredits: 1n,
                monthResetsAt: timestampFromDate(new Date("2026-12-01T00:00:00Z")),
              }),
              monthlyCapMicrocredits: 10_000_000n,
            },
          });
        },
      } as Record<string, AnyMethod>,
      script,
    ),
    inference: client(
      InferenceService,
      {
        generate: (request: GenerateRequest, options: Options) => script.generate(request, options),
        countTokens: async () => create(CountTokensResponseSchema, { inputTokens: 17 }),
        listModels: async () => create(ListModelsResponseSchema, { models: script.models }),
        getModel: async ({ modelId: model }: { modelId: string }) => {
          const found = create(ListModelsResponseSchema, { models: script.models }).models.find(
            ({ modelId: id }) => id === model,
          );
          if (!found)
            throw new ApiError("model_not_found", {
              message: `model: ${model}`,
              allowed: ["model-sonnet-4.6"],
            });
          return { model: found };
        },
      } as Record<string, AnyMethod>,
      script,
    ),
    billing: client(
      serviceTypes.billing,
      {
        getPools: async () =>
          create(GetPoolsResponseSchema, {
            pools: [{ family: Family.V1, freeMicrocredits: 999_500_000n }],
          }),
        getReceipt: async ({ requestId }: { requestId: string }) => {
          const found = script.receipts.get(requestId);
          if (!found) throw new ApiError("not_found");
          return { receipt: found };
        },
      } as Record<string, AnyMethod>,
      script,
    ),
  };
}

export type ScriptedHttpServer = {
  server: HttpServer;
  url: string;
  port: number;
  script: ScriptedServices;
};

const noFailedCredentials: FailedCredentials = { check: () => {}, record: () => {} };

/** Starts the listener; it stops when the test ends. */
export async function startHttpServer(
  parts: Partial<HttpServerParts & { failedCredentials: FailedCredentials }> = {},
  settings: Partial<HttpServerParts["settings"]> = {},
  addRoutes: (server: HttpServer) => void = () => {},
): Promise<ScriptedHttpServer> {
  const script: ScriptedServices = {
    generate: () => play(answerOf("Hello")),
    models: [],
    receipts: new Map(),
    keys: new Set([goodKey]),
    calls: [],
    instead: new Map(),
  };
  const { failedCredentials = noFailedCredentials, ...rest } = parts;
  const core = scriptedCore(script);
  const server = createHttpServer({
    core,
    settings: { file: { nativeBearer: "auto" }, trustedProxies: [], ...settings },
    readiness: async () => ({ database: { state: "ok" } }),
    identifyCaller: createIdentifyCaller(core, failedCredentials),
    ...defaultLimits(rest),
    log: createLog("silent"),
    ...rest,
  });
  addRoutes(server);
  const url = await server.listen({ host: "127.0.0.1", port: 0 });
  onTestFinished(async () => {
    server.server.closeAllConnections();
    await server.close();
  });
  return { server, url, port: Number(new URL(url).port), script };
}

export const nativeHeaders = {
  "x-api-key": goodKey,
  "anthropic-version": "2023-06-01",
  "content-type": "application/json",
};
export const chatHeaders = {
  authorization: `Bearer ${goodKey}`,
  "content-type": "application/json",
};
export const nativeBody = {
  model: "sonnet",
  max_tokens: 100,
  messages: [{ role: "user", content: "Hi" }],
};
export const chatBody = { model: "sonnet", messages: [{ role: "user", content: "Hi" }] };

export function post(
  url: string,
  path: string,
  headers: Record<string, string>,
  body: unknown,
): Promise<Response> {
  return fetch(url + path, {
    method: "POST",
    headers,
    body: typeof body === "string" ? body : JSON.stringify(body),
  });
}

export const postNative = (
  url: string,
  body: unknown = nativeBody,
  headers: Record<string, string> = nativeHeaders,
) => post(url, "/v1/messages", headers, body);
export const postChat = (
  url: string,
  body: unknown = chatBody,
  headers: Record<string, string> = chatHeaders,
) => post(url, "/v1/chat/completions", headers, body);

/** Sends `text` on a TCP connection and returns every byte until the server closes it. */
export async function sendRaw(port: number, text: string): Promise<string> {
  const socket = connect(port, "127.0.0.1");
  const chunks: Buffer[] = [];
  socket.on("data", (chunk: Buffer) => chunks.push(chunk));
  socket.on("error", () => {});
  socket.write(text);
  await once(socket, "close");
  return Buffer.concat(chunks).toString();
}

export function receiptOf(init: MessageInitShape<typeof ReceiptSchema>): Receipt {
  return create(ReceiptSchema, {
    admittedAt: timestampFromDate(new Date("2026-11-21T00:00:00Z")),
    ...init,
  });
}
