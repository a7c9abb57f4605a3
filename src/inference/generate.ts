// The life of one request: prepare, pace, hold, provider, settle.

import { create } from "@bufbuild/protobuf";
import type { Event } from "../../gen/gateway/inference/v1/event_pb.ts";
import {
  AdmissionSchema,
  type GenerateRequest,
  type GenerateResponse,
  ReceiptSchema,
} from "../../gen/gateway/inference/v1/inference_pb.ts";
import type { Hold } from "../billing/billing.ts";
import { dearestInputMicro, dearestOutputMicro } from "../billing/price.ts";
import { Refusal } from "../errors.ts";
import { isRequestId, newRequestId } from "../ids.ts";
import type { Limits, RateLimitState } from "../limits/limits.ts";
import type { Call, Caller } from "../service.ts";
import type { Catalog } from "./catalog.ts";
import { conversationStart } from "./conversation-start.ts";
import { MeteredAnswer, type MeteredAnswerParts } from "./metered-answer.ts";
import { type Prepared, prepare } from "./prepare.ts";
import { tokensAbout } from "./prompt-size.ts";

export type GenerateParts = MeteredAnswerParts & {
  readonly catalog: () => Catalog;
  readonly limits: Limits;
};

/** A caller that pays. */
export type Payer = Extract<Caller, { kind: "key" }>;

/** The reaper leaves a request alone until it must have ended by itself. */
const deadlineMarginMs = 60_000;

/** One request as its caller reads it, one message at a time: the admission, the answer as it comes, its end, the receipt. */
export function generate(
  parts: GenerateParts,
  ask: GenerateRequest,
  call: Call,
  payer: Payer,
): AsyncIterableIterator<GenerateResponse, undefined> {
  return new Generation(parts, ask, call, payer);
}

type Step = IteratorResult<GenerateResponse, undefined>;

class Generation implements AsyncIterableIterator<GenerateResponse, undefined> {
  readonly #stages: AsyncGenerator<GenerateResponse, undefined>;
  /** Set while its reads are relayed and the stages stand at the admission. */
  #answer: MeteredAnswer | undefined;
  #hasLeft = false;

  constructor(parts: GenerateParts, ask: GenerateRequest, call: Call, payer: Payer) {
    this.#stages = this.#run(parts, ask, call, payer);
  }

  // The reads of the provider go past the stages: a generator costs a read about as much as decoding it does.
  next(): Promise<Step> {
    if (this.#answer === undefined) return this.#stages.next();
    try {
      return this.#answer.read().then(this.#relay, this.#fail);
    } catch (error) {
      return this.#fail(error);
    }
  }

  return(): Promise<Step> {
    this.#hasLeft = true;
    this.#answer = undefined;
    return this.#stages.return(undefined);
  }

  [Symbol.asyncIterator](): this {
    return this;
  }

  async *#run(
    parts: GenerateParts,
    ask: GenerateRequest,
    call: Call,
    payer: Payer,
  ): AsyncGenerator<GenerateResponse, undefined> {
    const requestId = requestIdOf(call);
    const prepared = prepare(parts.catalog(), ask, payer.key.allowedModels);
    const rateLimit = await parts.limits.take(payer.key.keyId, payer.key.requestsPerMinute);
    // From here on, so that whatever ends the requests of a key or of the process also finds those that are being admitted.
    const running = parts.running.open(payer.key.keyId, payer.secret.secretId);
    const hold = await placeHold(parts, prepared, { requestId, payer, signal: call.signal }).catch((error: unknown) => {
      parts.running.close(running);
      throw error;
    });
    const answer = new MeteredAnswer(parts, prepared, hold, running, call.signal);
    try {
      if (!this.#hasLeft) this.#answer = answer;
      yield admission(prepared, hold, rateLimit);
      // Here the answer goes by; see `next`. Whoever asked for it before the admission was there would be shown its end alone.
      if (this.#answer !== undefined) {
        throw answer.failed(new Refusal("internal", { cause: new Error("an answer is read one message at a time") }));
      }
      const { receipt, end } = await answer.settled();
      if (end.length > 0) yield relayed(end);
      yield response({ case: "receipt", value: create(ReceiptSchema, { receipt }) });
    } finally {
      // The answer failed, or the client hung up: what was produced is owed, unless it was settled above.
      answer.close();
    }
  }

  readonly #relay = (read: IteratorResult<Event[], undefined>): Step | Promise<Step> => {
    const answer = this.#answer;
    if (answer === undefined) return { done: true, value: undefined };
    try {
      if (read.done) {
        answer.checkComplete();
        this.#answer = undefined;
        return this.#stages.next();
      }
      const events = answer.take(read.value);
      return events instanceof Promise ? events.then(this.#show, this.#fail) : this.#show(events);
    } catch (error) {
      return this.#fail(error);
    }
  };

  readonly #show = (events: Event[]): Step | Promise<Step> =>
    events.length > 0 ? { done: false, value: relayed(events) } : this.next();

  readonly #fail = (error: unknown): Promise<Step> => {
    const told = this.#answer === undefined ? error : this.#answer.failed(error);
    this.#answer = undefined;
    return this.#stages.throw(told);
  };
}

/** The id that the caller proposes, or a new one. */
function requestIdOf({ requestHeader }: Call): string {
  const proposed = requestHeader.get("x-request-id");
  if (proposed === null) return newRequestId();
  if (isRequestId(proposed)) return proposed;
  throw new Refusal("invalid_request", {
    field: "x-request-id",
    message: "x-request-id: is req_ and 8 to 64 of a-z, A-Z, 0-9, _ and -",
  });
}

async function placeHold(
  parts: GenerateParts,
  prepared: Prepared,
  { requestId, payer, signal }: { requestId: string; payer: Payer; signal: AbortSignal },
): Promise<Hold> {
  const { target, bounds } = prepared;
  const ask = {
    requestId,
    payer: {
      accountId: payer.key.accountId,
      family: payer.key.family === 1 ? ("v1" as const) : ("v2" as const),
      keyId: payer.key.keyId,
      secretId: payer.secret.secretId,
    },
    model: target.model.id,
    price: target.price,
    bounds,
    deadlineMs: parts.requestMaxMs + deadlineMarginMs,
  };
  try {
    return await parts.holds.place(ask, signal);
  } catch (error) {
    const exact = await countWhereItDecides(parts, prepared, payer, error, signal);
    if (exact === undefined) throw error;
    return parts.holds.place({ ...ask, bounds: { ...bounds, input: exact } }, signal);
  }
}

// The estimate is about twice what a prompt usually is. Where the funds would cover the usual, the provider's own count decides.
async function countWhereItDecides(
  { upstreams }: GenerateParts,
  { request, size, bounds, target: { price } }: Prepared,
  payer: Payer,
  error: unknown,
  signal: AbortSignal,
): Promise<number | undefined> {
  const limit = error instanceof Refusal ? error.facts.limit : undefined;
  if (limit?.remaining === undefined) return undefined;
  const usualMicro =
    BigInt(tokensAbout(size)) * dearestInputMicro(price, bounds.dearestInput) +
    BigInt(bounds.minOutput) * dearestOutputMicro(price);
  if (usualMicro > limit.remaining) return undefined;
  const affinity = `${payer.key.keyId}/${request.model}/${conversationStart(request)}`;
  const count = await upstreams.countTokens({ request, affinity, signal, attempts: [] }).catch(() => undefined);
  return count && Math.ceil(count.inputTokens * 1.05);
}

function admission({ maxTokens, size }: Prepared, hold: Hold, rateLimit: RateLimitState | undefined): GenerateResponse {
  return response({
    case: "admission",
    value: create(AdmissionSchema, {
      requestId: hold.requestId,
      model: hold.model,
      grantedMaxTokens: hold.grantedOutput,
      requestedMaxTokens: maxTokens,
      estimatedInputTokens: tokensAbout(size),
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
