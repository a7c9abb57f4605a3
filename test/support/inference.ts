// The inference service over a real ledger, with a provider whose events a test scripts.

import { create } from "@bufbuild/protobuf";
import { type Event, EventSchema } from "../../gen/gateway/inference/v1/event_pb.ts";
import {
  CountTokensRequestSchema,
  type GenerateRequest,
  GenerateRequestSchema,
  type GenerateResponse,
} from "../../gen/gateway/inference/v1/inference_pb.ts";
import { KeySchema, SecretSchema } from "../../gen/gateway/keys/v1/keys_pb.ts";
import type { Clock } from "../../src/base/clock.ts";
import { ApiError, toApiError } from "../../src/base/errors.ts";
import { newRequestId } from "../../src/base/ids.ts";
import type { Payer } from "../../src/billing/admission.ts";
import { defaultCatalog, readCatalogFile } from "../../src/config/catalog.ts";
import type { Sink } from "../../src/contract/generation.ts";
import { createCatalog, createInference } from "../../src/inference/inference.ts";
import type { AnswerReader, ProviderRequest, Providers } from "../../src/providers/providers.ts";
import { createRateLimits } from "../../src/rate-limits/rate-limits.ts";
import { callBy } from "./calls.ts";
import { freshLedger, log } from "./ledger.ts";
import type { RequestMembers } from "./requests.ts";

export const events = {
  start: (usage?: {
    inputTokens?: number;
    cacheReadInputTokens?: number;
    outputTokens?: number;
  }): Event =>
    create(EventSchema, {
      kind: { case: "messageStart", value: { id: "msg_x", model: "m", ...(usage && { usage }) } },
    }),
  text: (text: string): Event =>
    create(EventSchema, {
      kind: { case: "blockDelta", value: { index: 0, kind: { case: "text", value: text } } },
    }),
  open: (): Event =>
    create(EventSchema, {
      kind: {
        case: "blockStart",
        value: { index: 0, block: { kind: { case: "text", value: { text: "" } } } },
      },
    }),
  close: (): Event => create(EventSchema, { kind: { case: "blockStop", value: { index: 0 } } }),
  delta: (usage?: {
    outputTokens?: number;
    inputTokens?: number;
    thinkingTokens?: number;
  }): Event =>
    create(EventSchema, {
      kind: { case: "messageDelta", value: { stopReason: "end_turn", ...(usage && { usage }) } },
    }),
  stop: (): Event => create(EventSchema, { kind: { case: "messageStop", value: {} } }),
};

/** Plays one answer. It may wait, watch `request.signal`, throw, or call `request.onAccepted`. */
export type PlayAnswer = (request: PlayedRequest) => AsyncIterable<Event[]>;
export type PlayedRequest = ProviderRequest & { onAccepted(isAccepted: boolean): void };

export type TestInference = Awaited<ReturnType<typeof freshInference>>;

/** Without `providers`, the test plays the answers. */
export async function freshInference(
  options: {
    clock?: Clock;
    providers?: Providers;
    confirmAlive?: () => Promise<void> | undefined;
  } = {},
) {
  const ledger = await freshLedger();
  const catalog = createCatalog(readCatalogFile(defaultCatalog()));
  let play: PlayAnswer = async function* () {};
  let count: () => number | undefined = () => undefined;
  const played: Providers = {
    generate: (request, reader) => ({
      ended: push(play({ ...request, onAccepted: (is) => reader.accepted(is) }), request, reader),
      attempts: () => [],
    }),
    countTokens: async () => {
      const inputTokens = count();
      return inputTokens === undefined ? undefined : { inputTokens };
    },
    isUsable: () => true,
  };
  const live = new Set<(change: { keyId: string }) => void>();
  const dead = new Set<string>();
  const keys = {
    onChanged: (listener: (change: { keyId: string }) => void) => {
      live.add(listener);
      return () => live.delete(listener);
    },
    refusalOf: async (keyId: string) => (dead.has(keyId) ? ("revoked_key" as const) : undefined),
  };
  const limits = createRateLimits({ nodes: { id: () => "a", live: () => ["a"] }, log });
  const inference = createInference({
    settings: { catalog },
    holds: ledger.holds,
    askToEnd: ledger.store.askToEnd,
    keys,
    limits,
    providers: played,
    log,
    confirmAlive: () => undefined,
    ...options,
  });

  return {
    ...ledger,
    inference,
    plays: (next: PlayAnswer) => {
      play = next;
    },
    counts: (next: () => number | undefined) => {
      count = next;
    },
    revoke: (keyId: string) => {
      dead.add(keyId);
      for (const listener of live) listener({ keyId });
    },
    /** Runs a request to its end. The caller hangs up through `hangUp`. */
    generate(payer: Payer, more: RequestMembers = {}, hangUp = new AbortController()) {
      return inference.service.generate(requestOf(more), callOf(payer, hangUp.signal));
    },
    /** Runs a request whose answer goes to `sink`. `isNewId`: its hold may be overlapped. */
    generateInto(
      sink: Sink,
      payer: Payer,
      {
        more = {},
        hangUp = new AbortController(),
        isNewId = false,
      }: { more?: RequestMembers; hangUp?: AbortController; isNewId?: boolean } = {},
    ) {
      const { caller, requestHeader: headers } = callOf(payer, hangUp.signal);
      return inference.generate({
        request: requestOf(more),
        caller,
        headers,
        requestId: newRequestId(),
        isNewId,
        sink,
        client: hangUp.signal,
      });
    },
    async countTokens(payer: Payer) {
      const request = create(CountTokensRequestSchema, { request: requestOf({}) });
      const { inputTokens, estimated } = await inference.service.countTokens(
        request,
        callOf(payer, new AbortController().signal),
      );
      return { inputTokens, estimated };
    },
    async collect(stream: AsyncIterable<GenerateResponse>) {
      const seen: GenerateResponse[] = [];
      let failure: unknown;
      try {
        for await (const one of stream) seen.push(one);
      } catch (error) {
        failure = error;
      }
      const admission = seen.flatMap(({ kind }) =>
        kind.case === "admission" ? [kind.value] : [],
      )[0];
      const receipt = seen.flatMap(({ kind }) => (kind.case === "receipt" ? [kind.value] : []))[0];
      const shown = seen.flatMap(({ kind }) => (kind.case === "events" ? kind.value.events : []));
      return { seen, admission, receipt, shown: shown.map(({ kind }) => kind.case), failure };
    },
    /** The charge of a request, once its hold is gone. */
    async charged(requestId: string) {
      for (;;) {
        const [charge] = await ledger.store.findCharges(requestId);
        if (charge) return charge;
        await new Promise((resolve) => setTimeout(resolve, 5));
      }
    },
  };
}

/** Rejects when the signal fires: a provider that sends nothing more. */
export function silence({ signal }: ProviderRequest): Promise<never> {
  return new Promise((_, reject) => {
    const abort = () => reject(new DOMException("aborted", "AbortError"));
    if (signal.aborted) abort();
    signal.addEventListener("abort", abort);
  });
}

/** Pushes an answer as providers do. Only its signal ends it, not a reader that is gone. */
async function push(
  answer: AsyncIterable<Event[]>,
  { signal }: ProviderRequest,
  reader: AnswerReader,
): Promise<ApiError | undefined> {
  const stopped = new Promise<IteratorResult<Event[]>>((_, reject) => {
    const stop = () => reject(new ApiError("cancelled"));
    if (signal.aborted) stop();
    signal.addEventListener("abort", stop, { once: true });
  });
  stopped.catch(() => undefined);
  const reads = answer[Symbol.asyncIterator]();
  try {
    const next = () => Promise.race([reads.next(), stopped]);
    let read = await next();
    reader.begin({ provider: "played", span: undefined, isPlain: false });
    for (; !read.done; read = await next())
      for (let wait = reader.write(read.value); wait; wait = reader.write(read.value))
        await Promise.race([wait, stopped]);
    return undefined;
  } catch (error) {
    return toApiError(error);
  }
}

function requestOf(more: RequestMembers): GenerateRequest {
  return create(GenerateRequestSchema, {
    model: "haiku",
    maxTokens: 100,
    messages: [
      { role: 1, form: 1, content: [{ kind: { case: "text", value: { text: "Hello, model" } } }] },
    ],
    ...more,
  });
}

function callOf({ keyId, accountId }: Payer, signal: AbortSignal) {
  const caller = {
    kind: "key" as const,
    key: create(KeySchema, { keyId, accountId, family: 1 }),
    secret: create(SecretSchema, { secretId: "sec_of_test" }),
  };
  return { ...callBy(caller, { signal }), caller };
}
