// The life of one request: prepare, pace, hold, provider, settle.

import { create } from "@bufbuild/protobuf";
import { type Attempt, Basis, InputCategory, Outcome, type Receipt } from "../../gen/gateway/billing/v1/billing_pb.ts";
import type { Block } from "../../gen/gateway/inference/v1/content_pb.ts";
import type { Event } from "../../gen/gateway/inference/v1/event_pb.ts";
import {
  AdmissionSchema,
  type GenerateRequest,
  type GenerateResponse,
  ReceiptSchema,
} from "../../gen/gateway/inference/v1/inference_pb.ts";
import type { Hold, Holds } from "../billing/billing.ts";
import { dearestInputMicro, dearestOutputMicro } from "../billing/price.ts";
import { Refusal, toRefusal } from "../errors.ts";
import { isRequestId, newRequestId } from "../ids.ts";
import type { Limits, RateLimitState } from "../limits/limits.ts";
import type { Call, Caller } from "../service.ts";
import type { UpstreamAsk, Upstreams } from "../upstream/upstream.ts";
import type { Catalog } from "./catalog.ts";
import { Meter, type Owed } from "./meter.ts";
import { type Prepared, prepare } from "./prepare.ts";
import { tokensAbout } from "./prompt-size.ts";
import type { Running, RunningRequests } from "./running.ts";
import { showCharged } from "./shown-usage.ts";

export type GenerateParts = {
  readonly catalog: () => Catalog;
  readonly holds: Holds;
  readonly limits: Limits;
  readonly upstreams: Upstreams;
  readonly running: RunningRequests;
  readonly requestMaxMs: number;
};

/** A caller that pays. */
export type Payer = Extract<Caller, { kind: "key" }>;

/** A client that left is worth this wait for figures that would make its bill exact. */
const lastFiguresMs = 2_000;
/** How long the end of an answer waits for a ledger that is away. */
const settlePatienceMs = 60_000;
/** The reaper leaves a request alone until it must have ended by itself. */
const deadlineMarginMs = 60_000;

export async function* generate(
  parts: GenerateParts,
  ask: GenerateRequest,
  call: Call,
  payer: Payer,
): AsyncGenerator<GenerateResponse> {
  const requestId = requestIdOf(call);
  const prepared = prepare(parts.catalog(), ask, payer.key.allowedModels);
  const rateLimit = await parts.limits.take(payer.key.keyId, payer.key.requestsPerMinute);
  // From here on, so that whatever ends the requests of a key or of the process also finds those that are being admitted.
  const running = parts.running.open(payer.key.keyId, payer.secret.secretId);
  const hold = await placeHold(parts, prepared, { requestId, payer, signal: call.signal }).catch((error: unknown) => {
    parts.running.close(running);
    throw error;
  });
  const answer = new Answer(parts, prepared, hold, running, call.signal);
  try {
    yield admission(prepared, hold, rateLimit);
    for await (const events of answer.events()) yield relayed(events);
    const { receipt, end } = await answer.settled();
    if (end.length > 0) yield relayed(end);
    yield response({ case: "receipt", value: create(ReceiptSchema, { receipt }) });
  } finally {
    // The answer failed, or the client hung up: what was produced is owed, unless it was settled above.
    answer.close();
  }
}

/** An answer under way: relays what may be seen, holds back its end, and knows what is owed at each moment. */
class Answer {
  /** The end of the answer, which waits for the charge. */
  readonly #end: Event[] = [];
  readonly #parts: GenerateParts;
  readonly #prepared: Prepared;
  readonly #running: Running;
  readonly #client: AbortSignal;
  readonly #meter: Meter;
  readonly #attempts: Attempt[] = [];
  readonly #timer: NodeJS.Timeout;
  #hold: Hold;
  #accepted = false;
  #inputFitted = false;
  #failure: unknown;
  #settled: Promise<Receipt> | undefined;
  #lastFigures: NodeJS.Timeout | undefined;

  constructor(parts: GenerateParts, prepared: Prepared, hold: Hold, running: Running, client: AbortSignal) {
    this.#parts = parts;
    this.#prepared = prepared;
    this.#hold = hold;
    this.#running = running;
    this.#client = client;
    this.#meter = new Meter(tokensAbout(prepared.size), prepared.size.dearest === InputCategory.CACHE_WRITE_1H);
    this.#timer = setTimeout(() => running.end(tooLong), parts.requestMaxMs);
    client.addEventListener("abort", this.#onHangUp, { once: true });
    running.onEnd = () => this.close();
    parts.holds.watch(hold.requestId, () => this.#meter.movedUsage());
    // The gateway ended the request while it was being admitted, and its client may read no further than the admission.
    if (running.endedBy) this.close();
  }

  /** What may be relayed before the charge. Fails with what the client is to be told. */
  async *events(): AsyncGenerator<Event[]> {
    try {
      if (this.#client.aborted) throw clientLeft();
      this.#checkEnded();
      for await (const events of this.#parts.upstreams.generate(this.#ask())) {
        const before = this.#meter.fold(events);
        if (!this.#inputFitted) await this.#fitInput();
        this.#checkEnded();
        if (before < events.length) this.#end.push(...(before === 0 ? events : events.slice(before)));
        if (this.#client.aborted) this.#onHangUp();
        else if (before > 0) yield before === events.length ? events : events.slice(0, before);
      }
      if (this.#client.aborted) throw clientLeft();
      if (!this.#meter.complete) throw new Refusal("upstream_error", { message: "The model provider ended its answer early." });
    } catch (error) {
      this.#failure = this.#running.endedBy?.refusal ?? (this.#client.aborted ? clientLeft() : error);
      throw this.#failure;
    }
  }

  /**
   * The charge of a complete answer, and its end, which may be shown now. Throws `billing_unavailable` when the ledger stays away; the
   * charge is made all the same.
   */
  async settled(): Promise<{ receipt: Receipt; end: Event[] }> {
    const owed = this.#meter.final();
    const settling = this.#settle(owed, Outcome.COMPLETED);
    const receipt = await within(settlePatienceMs, settling, () => new Refusal("billing_unavailable", { retryAfterMs: 1000 }));
    // Somebody settled by older figures, so this client must not see an end that says otherwise.
    if (receipt.outcome !== Outcome.COMPLETED) throw this.#running.endedBy?.refusal ?? new Refusal("gateway_unavailable");
    return { receipt, end: owed.basis === Basis.REPORTED ? this.#end : showCharged(this.#end, owed.usage) };
  }

  /** Ends whatever still runs and charges it. Harmless when repeated. */
  close(): void {
    this.#parts.running.close(this.#running);
    clearTimeout(this.#timer);
    clearTimeout(this.#lastFigures);
    this.#client.removeEventListener("abort", this.#onHangUp);
    if (this.#settled !== undefined) return;
    this.#running.stopProvider();
    const { outcome, owed } = this.#interrupted();
    // Nobody waits for this receipt, and the lane keeps the charge until the ledger takes it.
    this.#settle(owed, outcome).catch(() => undefined);
  }

  #ask(): UpstreamAsk {
    const { request, target } = this.#prepared;
    return {
      request: { ...request, maxTokens: this.#hold.grantedOutput },
      affinity: `${this.#hold.payer.keyId}/${target.model.id}/${conversationStart(request)}`,
      signal: this.#running.signal,
      attempts: this.#attempts,
      onAccepted: (isAccepted) => {
        this.#accepted = isAccepted;
      },
    };
  }

  // What the gateway has ended is settled, so what the provider had sent ahead must not follow.
  #checkEnded(): void {
    if (this.#running.endedBy) throw this.#running.endedBy.refusal;
  }

  // The estimate that the hold was made for is corrected once, before anything is relayed.
  async #fitInput(): Promise<void> {
    const input = this.#meter.reportedInput();
    if (!input) return;
    this.#inputFitted = true;
    try {
      this.#hold = await this.#parts.holds.fit(this.#hold, input);
    } catch (error) {
      this.#running.end({ refusal: toRefusal(error), outcome: Outcome.INPUT_ABOVE_HOLD });
      throw error;
    }
  }

  // Nothing more can be delivered, so the provider is stopped: at once, unless a moment more makes the bill exact.
  readonly #onHangUp = (): void => {
    const isWorthAMoment = this.#accepted && (this.#meter.ending || !this.#meter.contentBegan) && !this.#meter.complete;
    const hasInput = this.#meter.reportedInput() !== undefined;
    if (!isWorthAMoment || (hasInput && !this.#meter.ending)) this.#running.stopProvider();
    else this.#lastFigures ??= setTimeout(() => this.#running.stopProvider(), lastFiguresMs);
  };

  #settle(owed: Owed, outcome: Outcome): Promise<Receipt> {
    const { usage, basis } = owed;
    this.#settled ??= this.#parts.holds.settle(this.#hold, { usage, basis, outcome, attempts: this.#attempts });
    return this.#settled;
  }

  /** What an answer that did not come to its end costs, and what it is recorded as. */
  #interrupted(): { outcome: Outcome; owed: Owed } {
    const meter = this.#meter;
    const produced = () => (meter.ending ? meter.final() : meter.soFar());
    const by = this.#running.endedBy;
    if (by?.outcome === Outcome.INPUT_ABOVE_HOLD) return { outcome: by.outcome, owed: meter.nothing() };
    if (by) return { outcome: by.outcome, owed: this.#accepted ? produced() : meter.nothing() };
    if (this.#failure === undefined || this.#client.aborted) {
      if (!this.#accepted) return { outcome: Outcome.CLIENT_LEFT_BEFORE_ACCEPTANCE, owed: meter.nothing() };
      if (!meter.contentBegan) return { outcome: Outcome.CLIENT_LEFT_BEFORE_CONTENT, owed: meter.inputOnly() };
      return { outcome: Outcome.CLIENT_LEFT, owed: produced() };
    }
    const { refusal } = toRefusal(this.#failure);
    const owed = meter.contentBegan ? produced() : meter.nothing();
    if (refusal === "internal") return { outcome: Outcome.GATEWAY_FAILED, owed };
    if (!meter.contentBegan) return { outcome: Outcome.UPSTREAM_FAILED, owed };
    return { outcome: refusal === "timeout" ? Outcome.TIME_LIMIT : Outcome.UPSTREAM_BROKE, owed };
  }
}

const tooLong = {
  refusal: new Refusal("timeout", { message: "The answer took longer than this gateway allows." }),
  outcome: Outcome.TIME_LIMIT,
};

function clientLeft(): Refusal {
  return new Refusal("cancelled");
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

/** Enough of a conversation's beginning to tell it from others. */
export function conversationStart({ messages, system }: GenerateRequest): string {
  const instruction = system?.content.find((block) => !textOf(block).startsWith(attribution));
  const first = messages[0]?.content[0];
  return [instruction, first].map((block) => textOf(block).slice(0, 256)).join("/");
}

/** The first line of the coding assistant's instructions, which differs from call to call of one conversation. */
const attribution = "x-anthropic-billing-header:";

function textOf(block: Block | undefined): string {
  return block?.kind.case === "text" ? block.kind.value.text : "";
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

function within<T>(ms: number, work: Promise<T>, refusal: () => Refusal): Promise<T> {
  return new Promise<T>((resolve, reject) => {
    const timer = setTimeout(() => reject(refusal()), ms);
    work.then(resolve, reject).finally(() => clearTimeout(timer));
  });
}
