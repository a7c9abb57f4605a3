// The life of one request, from top to bottom: prepare, rate limit, hold, provider, settle.

import assert from "node:assert/strict";
import type { Receipt } from "../../gen/gateway/billing/v1/receipt_pb.ts";
import type { Admission } from "../../gen/gateway/inference/v1/inference_pb.ts";
import { ApiError, type ErrorReason, toApiError } from "../base/errors.ts";
import { familyName } from "../base/families.ts";
import {
  type Billing,
  type ExpectedHold,
  type Hold,
  minHoldMicro,
  type NewHold,
  type PriceLists,
  type UsageBounds,
} from "../billing/billing.ts";
import type { CallHeaders } from "../contract/contract.ts";
import type { Generation } from "../contract/generation.ts";
import type { ProviderRun, Providers } from "../providers/providers.ts";
import type { Place, RateLimitState, RateLimits } from "../rate-limits/rate-limits.ts";
import type { Span, Tracer } from "../tracing/tracing.ts";
import type { ActiveRequest, ActiveRequests, UnpaidCalls } from "./active-requests.ts";
import { Answer, type AnswerParts } from "./answer.ts";
import { Bill, type BillParts } from "./bill.ts";
import type { Catalog } from "./catalog.ts";
import type { GenaiMetrics } from "./genai-metrics.ts";
import { affinityOf, type Prepared, prepare } from "./prepare.ts";
import { estimatedTokensOf, fewestTokensOf, rangeOfCount } from "./prompt-size.ts";

export type GenerateParts = BillParts &
  AnswerParts & {
    /** As `Inference.counters`. */
    readonly counters: { discardedCalls: number; leftUnpaid: number };
    readonly unpaidCalls: UnpaidCalls;
    readonly settings: { readonly catalog: Catalog };
    readonly priceLists: PriceLists;
    readonly limits: RateLimits;
    readonly providers: Providers;
    readonly activeRequests: ActiveRequests;
    /** As `Billing.countRejected`. */
    readonly countRejected: Billing["countRejected"];
    /** Whether a provider may be called while the hold is being placed. */
    readonly overlap: boolean;
    /** Absent: nothing is counted by the names of OpenTelemetry. */
    readonly genai?: GenaiMetrics | undefined;
    /** Absent: nothing is traced. */
    readonly tracer?: Tracer | undefined;
  };

/** Longest life of a request. */
const requestMaxMs = 30 * 60_000;
/** Time between the time limit of a request and the deadline of its hold. */
const deadlineMarginMs = 60_000;
/** Of a call that nobody has begun to trace. */
const traceName = "gateway.inference.v1.InferenceService/Generate";
/** Longest wait for a provider's count during an admission. */
const countMaxWaitMs = 2_000;

/** Runs one request, as `Generate`. The end of its answer is handed on after its charge. */
// biome-ignore lint/complexity/noExcessiveCognitiveComplexity: a request, top to bottom
export async function generate(parts: GenerateParts, generation: Generation): Promise<Receipt> {
  const { genai } = parts;
  const { requestId, sink, client, headers } = generation;
  const { key, secret, priceListId } = generation.caller;
  const startMs = genai ? performance.now() : 0;
  const trace = parts.tracer?.join(headers, traceName);
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
  let answer: Answer | undefined;
  let bill: Bill | undefined;
  const onHangUp = () => {
    if (bill) answer?.leave();
    else active.stopCall();
    // A provider was at work before the hold.
    if (!answer?.isOverlapped || (bill && answer.isAccepted)) return;
    parts.counters.leftUnpaid += 1;
    parts.unpaidCalls.add(key.keyId);
  };
  client.addEventListener("abort", onHangUp, { once: true });
  try {
    // Only where the lists have changed, or this one is new.
    const reading = parts.priceLists.ensure(priceListId);
    if (reading) await reading;
    const prepared = prepare(
      parts.settings.catalog,
      generation.request,
      key.allowedModels,
      priceListId,
    );
    // Saves the promise for a key without a limit.
    if (key.requestsPerMinute !== undefined)
      place = await parts.limits.acquire(key.keyId, key.requestsPerMinute);
    // No provider is called for a client that is gone.
    if (client.aborted) throw new ApiError("cancelled");
    holding = trace?.span("hold");
    const call = (maxTokens: number, reader: Answer) =>
      parts.providers.generate(
        {
          request: { ...prepared.request, maxTokens },
          affinity: () => affinityOf(key.keyId, prepared.request),
          accountId: key.accountId,
          repeat: repeatOf(headers),
          signal: active.provider.signal,
          client,
          trace,
          waits: generation.waits,
        },
        reader,
      );
    const of = { generation, prepared, active };
    const newHold = newHoldOf(parts, of);
    const expected = expectFull(parts, newHold, generation);
    let run: ProviderRun | undefined;
    let hold: Hold | undefined;
    if (expected) {
      // While the hold is being placed: a provider takes 200 ms to its first token, a hold a few,
      // so that no client waits for the hold. First the call: the batch of the hold is written in a
      // later turn, and the call should not wait for it.
      const grantedOutput = newHold.bounds.maxOutput;
      answer = new Answer(parts, { ...of, grantedOutput, isOverlapped: true });
      run = call(grantedOutput, answer);
      hold = await placeFull(parts, newHold, expected, answer, active);
    }
    if (!hold || !answer) {
      hold = await placeHold(parts, of, expected ? again(newHold) : newHold);
      answer = new Answer(parts, { ...of, grantedOutput: hold.grantedOutput });
      run = undefined;
    }
    holding?.end({ "gateway.microcredits": Number(hold.amountMicro) });
    bill = new Bill(parts, { prepared, hold, answer, trace });
    sink.admit(admission(prepared, hold, place?.rateLimit));
    answer.open(bill);
    answer.throwIfEnded();
    await answer.delivered(run ?? call(hold.grantedOutput, answer));
    return await answer.settle(bill);
  } catch (error) {
    if (bill && answer) throw answer.fail(error);
    // Only admitted requests count towards the limit of the key.
    place?.cancel();
    const refused = toApiError(error);
    refusal = refused.reason;
    holding?.end({}, refusal);
    if (refusal !== "cancelled")
      parts.countRejected(key, refused, { requestId, model: generation.request.model });
    throw error;
  } finally {
    // Charges the usage so far of an answer that failed, or whose reader left.
    const closing = bill && answer?.close(bill);
    if (closing) await closing;
    const failure = bill ? answer?.failure : refusal;
    trace?.end({ "gateway.request_id": requestId }, failure);
    if (genai && bill) {
      const { firstEventMs } = answer ?? {};
      genai.count({
        ...bill.summary(),
        ...(failure !== undefined && { error: failure }),
        durationMs: performance.now() - startMs,
        firstEventMs: firstEventMs === undefined ? undefined : firstEventMs - startMs,
      });
    }
    client.removeEventListener("abort", onHangUp);
    cancelTimer();
    parts.activeRequests.close(active);
  }
}

/** How often an SDK has sent the request before, as it says. */
function repeatOf(headers: CallHeaders): number {
  return Number.parseInt(headers.get("x-stainless-retry-count") ?? "0", 10) || 0;
}

/** The hold, if a provider may be called before it is durable: it can hardly fail. */
function expectFull(
  { overlap, holds, unpaidCalls }: GenerateParts,
  newHold: NewHold,
  { isNewId, caller: { key, isLimited = false } }: Generation,
): ExpectedHold | undefined {
  // A proposed id may be taken, which only the ledger knows.
  if (!overlap || !isNewId || unpaidCalls.areMany(key.keyId)) return undefined;
  return holds.expectFull(newHold, isLimited);
}

/**
 * Places the hold of an answer that has begun. Undefined, and the call of its provider is stopped,
 * if the hold is not granted in full.
 */
async function placeFull(
  { holds, counters, unpaidCalls }: GenerateParts,
  newHold: NewHold,
  expected: ExpectedHold,
  answer: Answer,
  active: ActiveRequest,
): Promise<Hold | undefined> {
  let hold: Hold | undefined;
  try {
    hold = await holds.placeFull(newHold, expected);
    return hold;
  } finally {
    if (hold === undefined) {
      answer.discard();
      counters.discardedCalls += 1;
      unpaidCalls.add(newHold.payer.keyId);
      active.stopCall();
    }
  }
}

/** A request on its way, before its hold. */
type Started = {
  readonly generation: Generation;
  readonly prepared: Prepared;
  readonly active: ActiveRequest;
};

function newHoldOf(
  { inputCounts }: GenerateParts,
  { generation: { requestId, isNewId, caller }, prepared }: Started,
): NewHold {
  const { target, bounds, request, price } = prepared;
  const { key, secret } = caller;
  const family = familyName(key.family);
  assert(family, "a key has a family");
  const { accountId, keyId } = key;
  const { id: model, contextTokens } = target.model;
  const excess = inputCounts.excessOf({ accountId, model });
  return {
    requestId,
    hasNewId: isNewId,
    payer: { accountId, family, keyId, secretId: secret.secretId },
    model,
    price,
    bounds: { ...bounds, input: Math.min(contextTokens, bounds.input + excess) },
    tags: request.tags,
    deadlineMs: requestMaxMs + deadlineMarginMs,
  };
}

/** A second attempt: the first may have been committed unseen, and settled elsewhere since. */
function again(newHold: NewHold): NewHold {
  return { ...newHold, hasNewId: false };
}

function placeHold(parts: GenerateParts, started: Started, newHold: NewHold): Promise<Hold> {
  const refine = (freeMicro: bigint) => refineBounds(parts, started, freeMicro);
  return parts.holds.place({ ...newHold, refine }, started.generation.client);
}

// The bound on the input is about twice the size of a usual prompt. Credits that do not cover the
// bound may still cover the prompt, so it is counted. Returns undefined, without a count, if the
// credits would hardly cover any text of this size.
async function refineBounds(
  { providers, inputCounts }: GenerateParts,
  { generation: { caller, client, waits }, prepared }: Started,
  freeMicro: bigint,
): Promise<UsageBounds | undefined> {
  const { request, size, bounds, target, price } = prepared;
  const { model } = target;
  const { keyId, accountId } = caller.key;
  const least = { ...bounds, minInput: fewestTokensOf(size) };
  if (minHoldMicro(price, least) > freeMicro) return undefined;
  const affinity = () => affinityOf(keyId, request);
  const signal = AbortSignal.any([client, AbortSignal.timeout(countMaxWaitMs)]);
  const counting = providers.countTokens({ request, affinity, accountId, signal, waits });
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
): Admission {
  return {
    $typeName: "gateway.inference.v1.Admission",
    requestId: hold.requestId,
    model: hold.model,
    grantedMaxTokens: hold.grantedOutput,
    // The client's own limit, even where that of the model is lower: the client then sees that it
    // is granted less.
    requestedMaxTokens: request.maxTokens ?? maxTokens,
    estimatedInputTokens: estimatedTokensOf(size),
    rateLimit,
    leftOut: request.origin?.leftOut ?? [],
  };
}

const timeLimit = {
  error: new ApiError("timeout", { message: "The answer took longer than this gateway allows." }),
  ending: "timeLimit",
} as const;
