// The life of one request: prepare, pace, hold, provider, settle.
//
// An answer passes through a chain of iterators, each of which hands on the promise of the one
// below wherever it has nothing to add: the guard's openLater (service.ts) lets only errors out;
// Generation, here, puts the admission before and the receipt after; MeteredAnswer counts, and
// keeps the end back until it is charged; Answer (providers/) makes the second attempt;
// RunningAttempt owns one attempt's slot, time and record up to its first event; HttpStream decodes
// what comes from the socket.

import assert from "node:assert/strict";
import { create } from "@bufbuild/protobuf";
import type { Event } from "../../gen/gateway/inference/v1/event_pb.ts";
import {
  AdmissionSchema,
  type GenerateRequest,
  type GenerateResponse,
  ReceiptSchema,
} from "../../gen/gateway/inference/v1/inference_pb.ts";
import { ApiError, invalidField } from "../base/errors.ts";
import { familyName } from "../base/families.ts";
import { isRequestId, newRequestId, requestIdRule } from "../base/ids.ts";
import type { Hold } from "../billing/billing.ts";
import { maxInputPriceMicro, maxOutputPriceMicro } from "../billing/billing.ts";
import type { Call, Caller } from "../contract/contract.ts";
import type { RateLimitState, RateLimits } from "../rate-limits/rate-limits.ts";
import type { Catalog } from "./catalog.ts";
import { MeteredAnswer, type MeteredAnswerParts } from "./metered-answer.ts";
import { affinityOf, type Prepared, prepare } from "./prepare.ts";
import { estimatedTokensOf } from "./prompt-size.ts";

export type GenerateParts = MeteredAnswerParts & {
  readonly catalog: () => Catalog;
  readonly limits: RateLimits;
};

/** A caller that pays. */
export type PayingCaller = Extract<Caller, { kind: "key" }>;

/** The reaper leaves a request alone until it must have ended by itself. */
const deadlineMarginMs = 60_000;

/**
 * One request as its caller reads it, one message at a time: the admission, the answer as it comes,
 * its end, the receipt.
 */
export function generate(
  parts: GenerateParts,
  ask: GenerateRequest,
  call: Call,
  caller: PayingCaller,
): AsyncIterableIterator<GenerateResponse, undefined> {
  return new Generation(parts, ask, call, caller);
}

type Step = IteratorResult<GenerateResponse, undefined>;

const over: Step = { done: true, value: undefined };

/**
 * A request under way. Every read takes one step, which names the next: admit; relay, as often as
 * the provider is read; settle; tell the receipt; nothing. By hand, because a generator costs a
 * read about as much as decoding it does.
 */
class Generation implements AsyncIterableIterator<GenerateResponse, undefined> {
  #step: () => Promise<Step>;
  /** Set from the admission until the answer is closed. */
  #answer: MeteredAnswer | undefined;
  #isClosed = false;

  constructor(parts: GenerateParts, ask: GenerateRequest, call: Call, caller: PayingCaller) {
    this.#step = () => this.#admit(parts, ask, call, caller);
  }

  next(): Promise<Step> {
    const step = this.#step;
    this.#step = this.#refuseSecondRead;
    return step();
  }

  async return(): Promise<Step> {
    this.#close();
    return over;
  }

  [Symbol.asyncIterator](): this {
    return this;
  }

  async #admit(
    parts: GenerateParts,
    ask: GenerateRequest,
    call: Call,
    caller: PayingCaller,
  ): Promise<Step> {
    try {
      const requestId = requestIdOf(call);
      const prepared = prepare(parts.catalog(), ask, caller.key.allowedModels);
      const rateLimit = await parts.limits.acquire(caller.key.keyId, caller.key.requestsPerMinute);
      // From here on, so that whatever ends the requests of a key or of the process also finds
      // those that are being admitted.
      const running = parts.activeRequests.open(caller.key.keyId, caller.secret.secretId);
      const hold = await placeHold(parts, prepared, {
        requestId,
        caller,
        signal: call.signal,
      }).catch((error: unknown) => {
        parts.activeRequests.close(running);
        throw error;
      });
      const answer = new MeteredAnswer(parts, { prepared, hold, running, client: call.signal });
      if (this.#isClosed) answer.close();
      else this.#answer = answer;
      this.#step = this.#read;
      return { done: false, value: admission(prepared, hold, rateLimit) };
    } catch (error) {
      return this.#fail(error);
    }
  }

  readonly #read = (): Promise<Step> =>
    this.#answer?.read().then(this.#relay, this.#fail) ?? this.#finish();

  readonly #relay = (read: IteratorResult<Event[], undefined>): Step | Promise<Step> => {
    if (this.#answer === undefined) return this.#finish();
    try {
      if (read.done) {
        this.#answer.checkComplete();
        return this.#settle(this.#answer);
      }
      const events = this.#answer.take(read.value);
      return events instanceof Promise ? events.then(this.#show, this.#fail) : this.#show(events);
    } catch (error) {
      return this.#fail(error);
    }
  };

  readonly #show = (events: Event[]): Step | Promise<Step> => {
    if (events.length === 0) return this.#read();
    this.#step = this.#read;
    return { done: false, value: relayed(events) };
  };

  async #settle(answer: MeteredAnswer): Promise<Step> {
    const { receipt, end } = await answer.settled().finally(() => this.#close());
    const last: Step = {
      done: false,
      value: response({ case: "receipt", value: create(ReceiptSchema, { receipt }) }),
    };
    if (end.length === 0) return last;
    this.#step = async () => {
      this.#step = this.#finish;
      return last;
    };
    return { done: false, value: relayed(end) };
  }

  readonly #finish = async (): Promise<Step> => {
    this.#step = this.#finish;
    return over;
  };

  readonly #fail = (error: unknown): never => {
    const told = this.#answer === undefined ? error : this.#answer.failed(error);
    this.#close();
    throw told;
  };

  // Whoever reads ahead of the admission, or of the provider, would be shown an answer that is not
  // all there.
  readonly #refuseSecondRead = async (): Promise<Step> =>
    this.#fail(
      new ApiError("internal", { cause: new Error("an answer is read one message at a time") }),
    );

  /** The answer failed, or its caller left: what was produced is owed, unless it was settled. */
  #close(): void {
    this.#isClosed = true;
    this.#answer?.close();
    this.#answer = undefined;
    this.#step = this.#finish;
  }
}

/** The id that the caller proposes, or a new one. */
function requestIdOf({ requestHeader }: Call): string {
  const proposed = requestHeader.get("x-request-id");
  if (proposed === null) return newRequestId();
  if (isRequestId(proposed)) return proposed;
  throw invalidField("x-request-id", requestIdRule);
}

async function placeHold(
  parts: GenerateParts,
  prepared: Prepared,
  { requestId, caller, signal }: { requestId: string; caller: PayingCaller; signal: AbortSignal },
): Promise<Hold> {
  const { target, bounds } = prepared;
  const family = familyName(caller.key.family);
  assert(family, "a key has a family");
  const ask = {
    requestId,
    payer: {
      accountId: caller.key.accountId,
      family,
      keyId: caller.key.keyId,
      secretId: caller.secret.secretId,
    },
    model: target.model.id,
    price: target.price,
    bounds,
    deadlineMs: parts.requestMaxMs + deadlineMarginMs,
  };
  try {
    return await parts.holds.place(ask, signal);
  } catch (error) {
    const exact = await countWhereItDecides(parts, prepared, caller, error, signal);
    if (exact === undefined) throw error;
    return parts.holds.place({ ...ask, bounds: { ...bounds, input: exact } }, signal);
  }
}

// The estimate is about twice what a prompt usually is. Where the funds would cover the usual, the
// provider's own count decides.
async function countWhereItDecides(
  { providers }: GenerateParts,
  { request, size, bounds, target: { price } }: Prepared,
  caller: PayingCaller,
  error: unknown,
  signal: AbortSignal,
): Promise<number | undefined> {
  const limit = error instanceof ApiError ? error.facts.limit : undefined;
  if (limit?.remaining === undefined) return undefined;
  const usualMicro =
    // What a document amounts to is for the provider to tell.
    BigInt(estimatedTokensOf({ ...size, pages: 0 })) *
      maxInputPriceMicro(price, bounds.mostExpensiveInput) +
    BigInt(bounds.minOutput) * maxOutputPriceMicro(price);
  if (usualMicro > limit.remaining) return undefined;
  const ask = { request, affinity: affinityOf(caller.key.keyId, request), signal };
  const count = await providers.countTokens(ask).catch(() => undefined);
  return count && Math.ceil(count.inputTokens * 1.05);
}

function admission(
  { request, maxTokens, size }: Prepared,
  hold: Hold,
  rateLimit: RateLimitState | undefined,
): GenerateResponse {
  return response({
    case: "admission",
    value: create(AdmissionSchema, {
      requestId: hold.requestId,
      model: hold.model,
      grantedMaxTokens: hold.grantedOutput,
      // Not the limit of a model that a name only hinted at: whoever is given less than it asked
      // for is to know.
      requestedMaxTokens: request.maxTokens ?? maxTokens,
      estimatedInputTokens: estimatedTokensOf(size),
      ...(rateLimit && { rateLimit }),
    }),
  });
}

// Literals, because these are made per read of a stream, and `create` takes several times as long.
function relayed(events: Event[]): GenerateResponse {
  return response({ case: "events", value: { $typeName: "gateway.inference.v1.Events", events } });
}

function response(kind: GenerateResponse["kind"]): GenerateResponse {
  return { $typeName: "gateway.inference.v1.GenerateResponse", kind };
}
