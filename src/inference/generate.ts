// The life of one request, from top to bottom: prepare, rate limit, hold, provider, settle.

import assert from "node:assert/strict";
import type { Receipt } from "../../gen/gateway/billing/v1/billing_pb.ts";
import type { Event } from "../../gen/gateway/inference/v1/event_pb.ts";
import type {
  GenerateRequest,
  GenerateResponse,
} from "../../gen/gateway/inference/v1/inference_pb.ts";
import type { Key } from "../../gen/gateway/keys/v1/keys_pb.ts";
import { ApiError, type ErrorReason, invalidField, toApiError } from "../base/errors.ts";
import { familyName } from "../base/families.ts";
import { isRequestId, newRequestId, requestIdRule } from "../base/ids.ts";
import {
  type ExpectedHold,
  type Hold,
  minHoldMicro,
  type NewHold,
  type UsageBounds,
} from "../billing/billing.ts";
import type { Call, Caller } from "../contract/contract.ts";
import type { ProviderAnswer, Providers } from "../providers/providers.ts";
import type { Place, RateLimitState, RateLimits } from "../rate-limits/rate-limits.ts";
import type { Span, Tracer } from "../tracing/tracing.ts";
import type { ActiveRequest, ActiveRequests } from "./active-requests.ts";
import { Bill, type BillParts } from "./bill.ts";
import type { Catalog } from "./catalog.ts";
import type { GenaiMetrics } from "./genai-metrics.ts";
import { fewestTokensOf, rangeOfCount } from "./input-counts.ts";
import { affinityOf, type Prepared, prepare } from "./prepare.ts";
import { estimatedTokensOf } from "./prompt-size.ts";
import type { UnpaidCalls } from "./unpaid-calls.ts";

export type GenerateParts = BillParts & {
  /** As `Inference.counters`. */
  readonly counters: { discardedCalls: number; leftUnpaid: number };
  readonly unpaidCalls: UnpaidCalls;
  readonly catalog: () => Catalog;
  readonly limits: RateLimits;
  readonly providers: Providers;
  readonly activeRequests: ActiveRequests;
  /** As `Billing.countRejected`. */
  readonly countRejected: (key: Key, reason: ErrorReason) => void;
  /** As `Billing.confirmAlive`. */
  readonly confirmAlive: () => Promise<void> | undefined;
  /** Whether a provider may be called while the hold is being placed. */
  readonly overlap: boolean;
  /** Absent: nothing is counted by the names of OpenTelemetry. */
  readonly genai?: GenaiMetrics | undefined;
  /** Absent: nothing is traced. */
  readonly tracer?: Tracer | undefined;
};

/** A caller that pays. */
export type PayingCaller = Extract<Caller, { kind: "key" }>;

/** Longest life of a request. */
const requestMaxMs = 30 * 60_000;
/** Time between the time limit of a request and the deadline of its hold. */
const deadlineMarginMs = 60_000;
/** Of a call that nobody has begun to trace. */
const traceName = "gateway.inference.v1.InferenceService/Generate";
/** Longest wait for a provider's count during an admission. */
const countMaxWaitMs = 2_000;

/**
 * Runs one request: yields its admission, the events of its answer, and its receipt. The events
 * that carry the end of the answer come after its charge is durable. Deltas that
 * `call.takeDeltas` takes are not yielded. Takes the messages and tools out of `received` once a
 * provider answers.
 */
export async function* generate(
  parts: GenerateParts,
  received: GenerateRequest,
  call: Call,
  caller: PayingCaller,
): AsyncGenerator<GenerateResponse, undefined> {
  const { genai } = parts;
  const { key, secret } = caller;
  const startMs = genai ? performance.now() : 0;
  let firstEventMs: number | undefined;
  const trace = parts.tracer?.join(call.requestHeader, traceName);
  const requestId = requestIdOf(call);
  // Open before the hold, so that a revocation or a drain also ends requests that are being
  // admitted.
  const active = parts.activeRequests.open({
    accountId: key.accountId,
    requestId,
    keyId: key.keyId,
    secretId: secret.secretId,
  });
  const cancelTimer = parts.clock.after(requestMaxMs, () => active.cancel(timeLimit));
  let refusal: ErrorReason | undefined;
  let place: Place | undefined;
  let holding: Span | undefined;
  let bill: Bill | undefined;
  // As `onAccepted` last said. Kept here until there is a bill: the client does not pay for what a
  // provider does before the hold is durable.
  let isAccepted = false;
  const reportAccepted = (to: Bill) => {
    to.accept(isAccepted);
    if (isAccepted) call.onAccepted?.();
  };
  const { takeDeltas } = call;
  // Reads that hold only deltas are offered here. What is not taken comes through the loop below.
  const relay =
    takeDeltas &&
    ((events: readonly Event[]) =>
      parts.confirmAlive() === undefined && bill?.relay(events, takeDeltas) === true);
  /** True while a provider may be at work and the hold is not durable. */
  let overlaps = false;
  const onHangUp = () => {
    if (overlaps && !(bill && isAccepted)) {
      parts.counters.leftUnpaid += 1;
      parts.unpaidCalls.add(key.keyId);
    }
    if (bill) bill.leave();
    else active.stopCall();
  };
  call.signal.addEventListener("abort", onHangUp, { once: true });
  try {
    const prepared = prepare(parts.catalog(), received, key.allowedModels);
    // Saves the promise for a key without a limit.
    if (key.requestsPerMinute !== undefined)
      place = await parts.limits.acquire(key.keyId, key.requestsPerMinute);
    holding = trace?.span("hold");
    const callProvider: CallProvider = (maxTokens, mayRepeat) =>
      parts.providers.generate({
        request: { ...prepared.request, maxTokens },
        affinity: () => affinityOf(key.keyId, prepared.request),
        accountId: key.accountId,
        repeat: repeatOf(call),
        signal: active.provider.signal,
        client: call.signal,
        onAccepted: (accepted) => {
          isAccepted = accepted;
          if (bill) reportAccepted(bill);
        },
        relay,
        mayRepeat,
        trace,
        waits: call.waits,
      });
    const newHold = newHoldOf(parts, prepared, { requestId, hasNewId: call.hasNewId }, caller);
    const expected = expectFull(parts, newHold, call, caller);
    overlaps = expected !== undefined;
    const early = expected
      ? await placeWhileCalling(parts, newHold, expected, active, callProvider)
      : undefined;
    const hold =
      early?.hold ??
      (await placeHold(parts, prepared, overlaps ? again(newHold) : newHold, caller, call));
    holding?.end({ "gateway.microcredits": Number(hold.amountMicro) });
    bill = new Bill(parts, { prepared, hold, active, client: call.signal, trace });
    // Only of the call that goes on: one that was stopped does not count.
    if (early && isAccepted) reportAccepted(bill);
    // Settles at once: a client that stopped reading leaves this generator suspended at a `yield`.
    active.onCancel(() => {
      const close = () => parts.activeRequests.close(active);
      const queueing = bill?.settleInterrupted();
      if (queueing) void queueing.then(close);
      else close();
    });
    yield admission(prepared, hold, place?.rateLimit);
    bill.throwIfEnded();

    const answer = await (early?.answer ?? callProvider(hold.grantedOutput));
    bill.begin(answer);
    forgetPrompt(received);
    forgetPrompt(prepared.request);
    for await (const events of answer.events) {
      const shown = bill.read(events);
      const alive = parts.confirmAlive();
      if (alive) await alive;
      bill.throwIfEnded();
      if (genai && shown.length > 0) firstEventMs ??= performance.now() - startMs;
      if (shown.length > 0) {
        bill.handOn(shown);
        yield response({ case: "events", value: eventsOf(shown) });
      }
      if (bill.isCut) break;
    }
    // `COMPLETED` is for a client that is still connected.
    bill.throwIfEnded();
    if (genai) firstEventMs ??= performance.now() - startMs;
    const { receipt, end } = await bill.settle();
    if (end.length > 0) yield response({ case: "events", value: eventsOf(end) });
    yield response({ case: "receipt", value: receiptMessage(receipt) });
  } catch (error) {
    if (bill) throw bill.fail(error);
    // Only admitted requests count towards the limit of the key.
    place?.cancel();
    refusal = toApiError(error).reason;
    holding?.end({}, refusal);
    if (refusal !== "cancelled") parts.countRejected(key, refusal);
    throw error;
  } finally {
    // If the answer failed or its reader left, charges the usage so far. No effect once settled.
    const closing = bill?.close();
    if (closing) await closing;
    trace?.end({ "gateway.request_id": requestId }, bill ? bill.summary().error : refusal);
    if (genai && bill)
      genai.count({ ...bill.summary(), durationMs: performance.now() - startMs, firstEventMs });
    call.signal.removeEventListener("abort", onHangUp);
    cancelTimer();
    parts.activeRequests.close(active);
  }
}

/**
 * Empties the lists of a request, whatever else holds on to it. From the first event of an answer
 * on, no other provider is called, and the answer may take minutes: the prompts of all open answers
 * would be most of the memory.
 */
function forgetPrompt(request: GenerateRequest): void {
  const { messages, system, tools } = request;
  messages.length = 0;
  tools.length = 0;
  if (system) system.content.length = 0;
  // Of OpenAI's formats they have the tools and a plain input, too.
  request.extensions = undefined;
}

/** How often an SDK has sent the request before, as it says. */
function repeatOf({ requestHeader }: Call): number {
  return Number.parseInt(requestHeader.get("x-stainless-retry-count") ?? "0", 10) || 0;
}

/** The id that the caller proposes, or a new one. */
function requestIdOf({ requestHeader, hasNewId }: Call): string {
  const proposed = requestHeader.get("x-request-id");
  if (proposed === null) return newRequestId();
  if (hasNewId || isRequestId(proposed)) return proposed;
  throw invalidField("x-request-id", requestIdRule);
}

/** Begins the provider's answer, as `Providers.generate`. */
type CallProvider = (
  maxTokens: number,
  mayRepeat?: () => Promise<boolean>,
) => Promise<ProviderAnswer>;

/** The hold, if a provider may be called before it is durable: it can hardly fail. */
function expectFull(
  { overlap, holds, unpaidCalls }: GenerateParts,
  newHold: NewHold,
  { hasNewId }: Call,
  { key }: PayingCaller,
): ExpectedHold | undefined {
  // A proposed id may be taken, which only the ledger knows.
  if (!overlap || !hasNewId || unpaidCalls.areMany(key.keyId)) return undefined;
  return holds.expectFull(newHold, key.monthlyCapMicrocredits !== undefined);
}

/**
 * Calls a provider while the hold is being placed: a provider takes 200 ms to its first token, a
 * hold a few, so that no client waits for the hold. Nothing of the answer leaves before the hold is
 * durable. Returns undefined, and stops the call, if the hold is not granted in full.
 */
async function placeWhileCalling(
  { holds, counters, unpaidCalls }: GenerateParts,
  newHold: NewHold,
  expected: ExpectedHold,
  active: ActiveRequest,
  callProvider: CallProvider,
): Promise<{ readonly hold: Hold; readonly answer: Promise<ProviderAnswer> } | undefined> {
  const isPlaced = () =>
    placing.then(
      (hold) => hold !== undefined,
      () => false,
    );
  // First: the batch of the hold is written in a later turn, and the call should not wait for it.
  const answer = callProvider(newHold.bounds.maxOutput, isPlaced);
  const placing = holds.placeFull(newHold, expected);
  let hold: Hold | undefined;
  try {
    hold = await placing;
    return hold && { hold, answer };
  } finally {
    if (hold === undefined) {
      counters.discardedCalls += 1;
      unpaidCalls.add(newHold.payer.keyId);
      active.stopCall();
    }
  }
}

function newHoldOf(
  { inputCounts }: GenerateParts,
  { target, bounds, request: { tags } }: Prepared,
  { requestId, hasNewId }: Pick<NewHold, "requestId" | "hasNewId">,
  { key, secret }: PayingCaller,
): NewHold {
  const family = familyName(key.family);
  assert(family, "a key has a family");
  const { accountId, keyId } = key;
  const { id: model, contextTokens } = target.model;
  const excess = inputCounts.excessOf({ accountId, model });
  return {
    requestId,
    hasNewId,
    payer: { accountId, family, keyId, secretId: secret.secretId },
    model,
    price: target.price,
    bounds: { ...bounds, input: Math.min(contextTokens, bounds.input + excess) },
    tags,
    deadlineMs: requestMaxMs + deadlineMarginMs,
  };
}

/** A second attempt: the first may have been committed unseen, and settled elsewhere since. */
function again(newHold: NewHold): NewHold {
  return { ...newHold, hasNewId: false };
}

function placeHold(
  parts: GenerateParts,
  prepared: Prepared,
  newHold: NewHold,
  caller: PayingCaller,
  call: Pick<Call, "signal" | "waits">,
): Promise<Hold> {
  const refine = (freeMicro: bigint) => refineBounds(parts, prepared, caller, freeMicro, call);
  return parts.holds.place({ ...newHold, refine }, call.signal);
}

// The bound on the input is about twice the size of a usual prompt. Credits that do not cover the
// bound may still cover the prompt, so it is counted. Returns undefined, without a count, if the
// credits would hardly cover any text of this size.
async function refineBounds(
  { providers, inputCounts }: GenerateParts,
  { request, size, bounds, target: { model, price } }: Prepared,
  { key: { keyId, accountId } }: PayingCaller,
  freeMicro: bigint,
  { signal, waits }: Pick<Call, "signal" | "waits">,
): Promise<UsageBounds | undefined> {
  const least = { ...bounds, minInput: fewestTokensOf(size) };
  if (minHoldMicro(price, least) > freeMicro) return undefined;
  const affinity = () => affinityOf(keyId, request);
  const inTime = AbortSignal.any([signal, AbortSignal.timeout(countMaxWaitMs)]);
  const counting = providers.countTokens({ request, affinity, accountId, signal: inTime, waits });
  const count = await counting.catch(() => undefined);
  const range = count
    ? rangeOfCount(count.inputTokens)
    : inputCounts.rangeOf({ accountId, model: model.id }, size, model.contextTokens);
  return range && { ...bounds, minInput: range.min, input: range.max };
}

function admission(
  { request, maxTokens, size }: Prepared,
  hold: Hold,
  rateLimit: RateLimitState | undefined,
): GenerateResponse {
  return response({
    case: "admission",
    value: {
      $typeName: "gateway.inference.v1.Admission",
      requestId: hold.requestId,
      model: hold.model,
      grantedMaxTokens: hold.grantedOutput,
      // The client's own limit, even where that of the model is lower: the client then sees that
      // it is granted less.
      requestedMaxTokens: request.maxTokens ?? maxTokens,
      estimatedInputTokens: estimatedTokensOf(size),
      rateLimit,
      leftOut: request.leftOut,
    },
  });
}

// Object literals, because each read of a stream makes them, and `create` takes several times as
// long.
function eventsOf(events: Event[]) {
  return { $typeName: "gateway.inference.v1.Events", events } as const;
}

function receiptMessage(receipt: Receipt) {
  return { $typeName: "gateway.inference.v1.Receipt", receipt } as const;
}

function response(kind: GenerateResponse["kind"]): GenerateResponse {
  return { $typeName: "gateway.inference.v1.GenerateResponse", kind };
}

const timeLimit = {
  error: new ApiError("timeout", { message: "The answer took longer than this gateway allows." }),
  ending: "timeLimit",
} as const;
