// The bill of one admitted request: reads the reports of its answer and counts what is handed on,
// keeps back the end of the answer until the charge is durable, and settles the hold once.

import { create } from "@bufbuild/protobuf";
import { Outcome, type Receipt } from "../../gen/gateway/billing/v1/billing_pb.ts";
import type { LeftOut } from "../../gen/gateway/common/v1/left_out_pb.ts";
import type { Usage } from "../../gen/gateway/common/v1/usage_pb.ts";
import { Format } from "../../gen/gateway/inference/v1/content_pb.ts";
import {
  BlockStopSchema,
  type Cost,
  type Event,
  type MessageDelta,
  MessageDeltaSchema,
  MessageStopSchema,
} from "../../gen/gateway/inference/v1/event_pb.ts";
import type { Clock } from "../base/clock.ts";
import { ApiError, toApiError } from "../base/errors.ts";
import type { Log } from "../base/log.ts";
import { withTimeout } from "../base/timeout.ts";
import { chargedUsage, type Ending, type Hold, type Holds } from "../billing/billing.ts";
import type { TakeDeltas } from "../contract/contract.ts";
import { withoutRuns } from "../formats/text-run.ts";
import type { ProviderAnswer } from "../providers/providers.ts";
import type { TraceScope } from "../tracing/tracing.ts";
import type { ActiveRequest } from "./active-requests.ts";
import { Counted } from "./counted.ts";
import { type Billed, chargeAt, type EndingName, seenUsage } from "./endings.ts";
import { genaiTokens } from "./genai-metrics.ts";
import { Grant } from "./grant.ts";
import type { InputCounts } from "./input-counts.ts";
import type { Prepared } from "./prepare.ts";
import { estimatedTokensOf } from "./prompt-size.ts";
import { Reported } from "./reported.ts";

/** Longest wait for a provider to report the usage of an answer whose client has left. */
const figuresMs = 2_000;
/** Longest wait for a provider's status after its client has left: a refused prompt is free. */
const statusMs = 10_000;
/** Longest wait of a complete answer for its charge, while the ledger is unavailable. */
const settleMaxWaitMs = 60_000;

/** How far an answer has come. Where its account ends the request, it decides the charge. */
type Phase = "before acceptance" | "before content" | "content" | "ending";

export type BillParts = {
  readonly holds: Holds;
  readonly log: Log;
  /** As `Inference.counters`. */
  readonly counters: { providerReportedZero: number };
  readonly inputCounts: InputCounts;
  readonly clock: Clock;
};

export class Bill {
  readonly #parts: BillParts;
  readonly #prepared: Prepared;
  readonly #active: ActiveRequest;
  readonly #client: AbortSignal;
  /** True if the client asked for an answer in one piece. */
  readonly #isPlain: boolean;
  readonly #reported: Reported;
  readonly #counted = new Counted();
  readonly #grant: Grant;
  readonly #trace: TraceScope | undefined;
  readonly #stopWatching: () => void;
  #hold: Hold;
  /** Resizes the hold to the reported input. Never rejects. */
  #resizing: Promise<void> | undefined;
  #answer: ProviderAnswer | undefined;
  /** True while a provider has the whole request and has not answered with an error status. */
  #isAccepted = false;
  #leftDuring: Phase | undefined;
  #cancelWait = () => {};
  #failure: unknown;
  /** True for an answer that came in one piece and is shown in one: all of it is its end. */
  #isWhole = false;
  /** True when the answer reached its grant and was cut: it ends before its provider ends it. */
  isCut = false;
  /** True when something came that is not stored yet. */
  #hasMoved = false;
  /** The end of the answer, which waits for the charge. */
  readonly #end: Event[] = [];
  #leftOutByTarget: readonly LeftOut[] = [];
  #settlement: Promise<Receipt> | undefined;
  #usage: Usage | undefined;

  /** `client` fires when the client hangs up. The owner of the bill then calls `leave`. */
  constructor(
    parts: BillParts,
    request: {
      prepared: Prepared;
      hold: Hold;
      active: ActiveRequest;
      client: AbortSignal;
      trace?: TraceScope | undefined;
    },
  ) {
    const { prepared, hold, active, client, trace } = request;
    this.#parts = parts;
    this.#prepared = prepared;
    this.#hold = hold;
    this.#active = active;
    this.#client = client;
    this.#trace = trace;
    this.#isPlain = prepared.request.stream !== true;
    this.#grant = new Grant(hold.grantedOutput);
    this.#reported = new Reported({
      countedInput: estimatedTokensOf(prepared.size),
      writesLiveLong: prepared.size.writesLiveLong,
      contextTokens: prepared.target.model.contextTokens,
      webSearches: prepared.bounds.webSearches,
      zeroUsage: prepared.target.model.zeroUsage,
    });
    if (client.aborted) this.leave();
    const { requestId, payer } = hold;
    const { accountId } = payer;
    this.#stopWatching = this.#isPlain
      ? () => {}
      : parts.holds.watch({ accountId, requestId }, () => this.#movedUsage());
  }

  /**
   * Call it with true when a provider has the whole request, and with false when that one failed
   * without an event.
   */
  accept(isAccepted: boolean): void {
    this.#isAccepted = isAccepted;
  }

  /** Call it with the provider's answer, before its first events. */
  begin(answer: ProviderAnswer): void {
    this.#answer = answer;
    this.#grant.mayCut = !answer.isPlain;
    this.#isWhole = answer.isPlain && this.#isPlain;
  }

  /** Throws when the gateway has cancelled the request, or its client has left. */
  throwIfEnded(): void {
    if (this.#active.cancelReason) throw this.#active.cancelReason.error;
    if (this.#client.aborted) throw new ApiError("cancelled");
  }

  /**
   * Reads the reports of one read. Returns its events that may be handed on before the charge, and
   * keeps back those of the end of the answer.
   */
  read(received: Event[]): Event[] {
    const [reported, counted, grant] = [this.#reported, this.#counted, this.#grant];
    // What comes after a client has left during content is not billed.
    if (this.#leftDuring === "content") return [];
    const mayReach = grant.mayReach(received, counted);
    const events = mayReach ? withoutRuns(received) : received;
    const cut = mayReach ? grant.cutAt(events, counted) : -1;
    let until = cut < 0 ? events.length : cut;
    let beforeEnd = reported.phase === "running" ? until : 0;
    let hasProgress = false;
    for (let index = 0; index < until; index++) {
      const event = events[index];
      if (event === undefined) break;
      const wasRunning = reported.phase === "running";
      reported.read(event);
      if (event.kind.case === "messageStart") this.#leftOutByTarget = event.kind.value.leftOut;
      if (wasRunning && reported.phase !== "running") beforeEnd = index;
      if (event.kind.case !== "progress") continue;
      hasProgress = true;
      if (grant.isExceeded(reported)) until = index;
    }
    this.#hasMoved = true;
    this.#resizeHold();
    const before = this.#isWhole ? 0 : Math.min(beforeEnd, until);
    for (const event of events.slice(before, until)) if (!isProgress(event)) this.#end.push(event);
    const shown = before < events.length ? events.slice(0, before) : events;
    const past = events[until];
    if (past) this.#cut(shown, past);
    return hasProgress ? shown.filter((event) => !isProgress(event)) : shown;
  }

  /** Counts events that go to the reader now. */
  handOn(events: readonly Event[]): void {
    for (const event of events) this.#counted.add(event);
    this.#hasMoved = true;
  }

  /**
   * Hands deltas to `take` and counts them, if they have no other effect and may be handed on now.
   * Returns false if nothing was done: they belong to `read`.
   */
  relay(events: readonly Event[], take: TakeDeltas): boolean {
    const mayRelay =
      this.#answer !== undefined &&
      this.#reported.phase === "running" &&
      this.#active.cancelReason === undefined &&
      this.#leftDuring === undefined &&
      events.every(({ kind }) => kind.case === "blockDelta") &&
      !this.#grant.mayReach(events, this.#counted);
    if (!mayRelay || !take(events)) return false;
    this.handOn(events);
    return true;
  }

  // The answer does not wait for its hold: only its charge does. What the pool lacks is overrun.
  #resizeHold(): void {
    const input = this.#reported.newInput();
    if (input === undefined) return;
    const { holds } = this.#parts;
    if (this.#resizing === undefined && holds.fits(this.#hold, input)) return;
    const resize = async () => {
      await this.#resizing;
      try {
        this.#hold = await holds.resize(this.#hold, input);
      } catch {
        // The charge is limited to the hold as it is.
      }
    };
    this.#resizing = resize();
  }

  /**
   * Charges a complete answer. Returns its receipt, and the end of the answer, which may now be
   * relayed. Throws `upstream_error` when the answer is not complete, and `billing_unavailable`
   * when the ledger stays unavailable. A stream is charged even then, because all but its end was
   * delivered; a plain answer is not.
   */
  async settle(): Promise<{ receipt: Receipt; end: Event[] }> {
    if (this.#reported.phase !== "complete" && !this.isCut) {
      const message = "The model provider ended its answer early.";
      throw new ApiError("upstream_error", { message });
    }
    this.handOn(this.#end);
    const total = this.#billedAt("complete");
    this.#countZeroInput();
    this.#learnInput(total.usage);
    const settlement = this.#charge(total);
    const giveUp = () => {
      if (!this.#isPlain) throw new ApiError("billing_unavailable", { message: chargedLater });
      const { requestId, payer } = this.#hold;
      const ending = this.#endingOf(this.#billedAt("undelivered"));
      this.#parts.holds.amend({ accountId: payer.accountId, requestId }, ending);
      throw new ApiError("billing_unavailable", { message: notDelivered, retryAfterMs: 1000 });
    };
    const { clock } = this.#parts;
    const receipt = await withTimeout(settlement, settleMaxWaitMs, giveUp, clock);
    // Another process has settled the request, by older usage. The client must not see an end that
    // contradicts its charge.
    if (receipt.outcome !== Outcome.COMPLETED)
      throw this.#active.cancelReason?.error ?? new ApiError("gateway_unavailable");
    return { receipt, end: this.#chargedEnd(total.usage, receipt) };
  }

  /** Stores the failure of the answer. Returns the error for the client. */
  fail(error: unknown): unknown {
    const left = this.#client.aborted ? new ApiError("cancelled") : undefined;
    this.#failure = this.#active.cancelReason?.error ?? left ?? error;
    return this.#failure;
  }

  /**
   * Stops the provider and charges the usage so far. If the client left and the provider is about
   * to report its usage, waits up to two seconds for it. Resolves when the settlement is queued;
   * undefined: it is.
   */
  close(): Promise<void> | undefined {
    return this.#settlement === undefined ? this.#closeUnsettled() : this.#resizing;
  }

  async #closeUnsettled(): Promise<void> {
    if (this.#failure === undefined) this.leave();
    await this.#readFigures();
    await this.settleInterrupted();
  }

  /** How the request went, once it is closed. */
  summary(): { provider: string; model: string; usage: Usage | undefined; error?: string } {
    const failure = this.#failure;
    return {
      provider: this.#answer?.provider ?? "",
      model: this.#hold.model,
      usage: this.#usage,
      ...(failure !== undefined && { error: toApiError(failure).reason }),
    };
  }

  /**
   * The client has hung up. Stops the provider at once, unless what it says next decides the
   * charge: its status before the first event, or the figures after the stop reason. No effect
   * after a settlement.
   */
  leave(): void {
    if (this.#leftDuring !== undefined || this.#active.cancelReason || this.#settlement) return;
    this.#leftDuring = this.#phase;
    const abort = () => this.#active.provider.abort();
    if (this.#leftDuring === "before content" && this.#answer === undefined)
      this.#cancelWait = this.#parts.clock.after(statusMs, abort);
    else if (this.#awaitsFigures) this.#cancelWait = this.#parts.clock.after(figuresMs, abort);
    else abort();
  }

  get #phase(): Phase {
    if (!this.#isAccepted) return "before acceptance";
    if (this.#reported.phase !== "running") return "ending";
    return this.#counted.began ? "content" : "before content";
  }

  get #awaitsFigures(): boolean {
    return this.#leftDuring === "ending" && !this.#reported.hasTotal;
  }

  async #readFigures(): Promise<void> {
    const events = this.#answer?.events[Symbol.asyncIterator]();
    while (events && this.#awaitsFigures) {
      // A failed or aborted provider ends the wait.
      const read = await events.next().catch(() => undefined);
      if (read === undefined || read.done) return;
      for (const event of read.value) this.#reported.read(event);
      this.#resizeHold();
    }
  }

  /**
   * Stops the provider and charges an incomplete answer. Does nothing after a settlement. Resolves
   * when the settlement is queued; undefined: it is.
   */
  settleInterrupted(): Promise<void> | undefined {
    if (this.#settlement === undefined) {
      this.#active.provider.abort();
      // The receipt is not needed. The batch queue retries until the charge is durable.
      this.#charge(this.#billedAt(this.#interruption())).catch(() => undefined);
    }
    return this.#resizing;
  }

  /** How an answer that did not reach its end was ended. */
  #interruption(): EndingName {
    if (this.#leftDuring !== undefined) {
      // A provider that has refused or failed since has done nothing that anybody pays for.
      const phase = this.#isAccepted ? this.#leftDuring : "before acceptance";
      if (phase === "before acceptance") return "leftBeforeAcceptance";
      return phase === "before content" ? "leftBeforeContent" : "left";
    }
    const reason = this.#active.cancelReason;
    if (reason) return reason.ending === "revoked" ? this.#revocation() : reason.ending;
    const failure = toApiError(this.#failure).reason;
    if (failure === "internal") return "gatewayFailed";
    if (!this.#counted.began) return "providerFailed";
    return failure === "timeout" ? "providerLate" : "providerBroke";
  }

  #revocation(): EndingName {
    const phase = this.#phase;
    if (phase === "before acceptance") return "revokedBeforeAcceptance";
    return phase === "before content" ? "revokedBeforeContent" : "revoked";
  }

  #billedAt(ending: EndingName): Billed {
    const answer = { isPlain: this.#isPlain, reported: this.#reported, counted: this.#counted };
    return chargeAt(ending, answer);
  }

  /** The usage to store while the answer runs. Undefined when nothing came since the last call. */
  #movedUsage(): Usage | undefined {
    if (!this.#hasMoved) return undefined;
    this.#hasMoved = false;
    return seenUsage(this.#reported, this.#counted);
  }

  /** Parts of the request that the provider did not get. */
  get #leftOut(): readonly LeftOut[] {
    const { leftOut } = this.#prepared.request;
    return this.#leftOutByTarget.length === 0 ? leftOut : [...leftOut, ...this.#leftOutByTarget];
  }

  #charge(billed: Billed): Promise<Receipt> {
    if (this.#settlement === undefined) {
      this.#stopWatching();
      this.#cancelWait();
      this.#usage = chargedUsage(billed.usage, this.#hold.grantedOutput);
      const ending = this.#endingOf(billed);
      const { requestId } = this.#hold;
      const leftOut = this.#leftOut.map(({ where, what, why }) => ({ where, what, why }));
      if (leftOut.length > 0)
        this.#parts.log.debug({ requestId, leftOut }, "a provider did not get all of a request");
      const settle = () => this.#parts.holds.settle(this.#hold, ending);
      this.#settlement = this.#resizing ? this.#resizing.then(settle) : settle();
      if (this.#trace) this.#traceSettlement(this.#trace, this.#settlement, this.#usage);
    }
    return this.#settlement;
  }

  #traceSettlement(trace: TraceScope, settlement: Promise<Receipt>, usage: Usage): void {
    const span = trace.span("settle");
    settlement.then(
      (receipt) => span.end({ "gateway.microcredits": Number(receipt.amountMicrocredits) }),
      (error: unknown) => span.end({}, toApiError(error).reason),
    );
    const tokens = genaiTokens(usage);
    this.#answer?.span?.set({
      "gen_ai.usage.input_tokens": tokens.input,
      "gen_ai.usage.output_tokens": tokens.output,
      "gen_ai.response.finish_reasons": this.#reported.stopReason && [this.#reported.stopReason],
    });
  }

  #endingOf({ usage, basis, outcome }: Billed): Ending {
    const leftOut = this.#leftOut;
    return { usage, basis, outcome, attempts: this.#answer?.attempts() ?? [], leftOut };
  }

  /** Ends the answer before the event `past`, with which it exceeds its grant. */
  #cut(shown: readonly Event[], past: Event): void {
    this.isCut = true;
    this.#active.provider.abort();
    const { provider } = this.#answer ?? {};
    const { grantedOutput, requestId } = this.#hold;
    const counted = this.#counted;
    const open = shown.findLast(
      ({ kind }) => kind.case === "blockStart" || kind.case === "blockStop",
    );
    const index =
      open?.kind.case === "blockStart"
        ? open.kind.value.index
        : open
          ? undefined
          : counted.openBlock;
    // It was produced, although it is not shown: the answer costs its whole grant.
    counted.add(past);
    const { output = 0, thinking = 0 } = seenUsage(this.#reported, counted) ?? {};
    const tokens = output + thinking;
    this.#parts.log.error(
      { code: "provider_past_grant", provider, requestId, grantedOutput, tokens },
      "the provider generated more output than its limit: its answer was cut",
    );
    if (index !== undefined)
      this.#end.push(eventOf({ case: "blockStop", value: create(BlockStopSchema, { index }) }));
    this.#end.push(
      eventOf({
        case: "messageDelta",
        value: create(MessageDeltaSchema, { stopReason: "max_tokens" }),
      }),
      eventOf({ case: "messageStop", value: create(MessageStopSchema) }),
    );
  }

  #learnInput({ input, cacheRead, cacheWrite5m, cacheWrite1h }: Usage): void {
    if (!this.#reported.hasInput) return;
    const { model, payer } = this.#hold;
    const tokens = input + cacheRead + cacheWrite5m + cacheWrite1h;
    const { accountId } = payer;
    const { inputCounts } = this.#parts;
    inputCounts.learn({ accountId, model }, this.#prepared.size, tokens);
    inputCounts.learnExcess({ accountId, model }, tokens - this.#prepared.bounds.input);
  }

  #countZeroInput(): void {
    const { hasInput, inputSum } = this.#reported;
    if (!hasInput || inputSum > 0 || !this.#counted.began) return;
    this.#parts.counters.providerReportedZero += 1;
    const { provider } = this.#answer ?? {};
    this.#parts.log.warn(
      {
        code: "provider_reported_zero",
        provider,
        model: this.#hold.model,
        requestId: this.#hold.requestId,
      },
      "the provider reported 0 input tokens for an answer",
    );
  }

  /** The end of the answer, with the charged tokens and their cost. */
  #chargedEnd(usage: Usage, { requestId, amountMicrocredits }: Receipt): Event[] {
    const end = this.#end;
    const $typeName = "gateway.inference.v1.Cost";
    const cost: Cost = {
      $typeName,
      requestId,
      amountMicrocredits,
      leftOut: [...this.#leftOut],
    };
    const charged = chargedUsage(usage, this.#hold.grantedOutput);
    const last = end.findLastIndex(({ kind }) => kind.case === "messageDelta");
    const event = end[last];
    if (event?.kind.case === "messageDelta") {
      const delta = event.kind.value;
      const shown = this.#reported.shown(charged, delta.usage);
      const value: MessageDelta = { ...delta, usage: shown ?? delta.usage, cost };
      return end.with(last, eventOf({ case: "messageDelta", value }));
    }
    // An answer that started complete has no such event, and its cost needs one.
    const { stopReason } = this.#reported;
    const shown = this.#reported.shown(charged, undefined);
    const value = create(MessageDeltaSchema, {
      cost,
      ...(stopReason !== undefined && { stopReason }),
      ...(shown && { usage: shown }),
    });
    const stop = end.findLastIndex(({ kind }) => kind.case === "messageStop");
    return end.toSpliced(stop, 0, eventOf({ case: "messageDelta", value }));
  }
}

/** True for a usage report ahead of the end, which is for the meter only. */
function isProgress({ kind }: Event): boolean {
  return kind.case === "progress";
}

const noBytes = new Uint8Array(0);

function eventOf(kind: Event["kind"]): Event {
  return {
    $typeName: "gateway.inference.v1.Event",
    kind,
    raw: noBytes,
    rawFormat: Format.UNSPECIFIED,
  };
}

const notDelivered =
  "The ledger is not reachable, so this answer was not delivered. It costs nothing, unless its " +
  "charge was being written at that moment; its receipt shows the charge.";
const chargedLater =
  "The ledger is not reachable. The answer is complete and will be charged when the ledger is " +
  "reachable again.";

declare module "../base/log.ts" {
  interface LogCodes {
    /** a provider generated more than it was allowed, and you pay for it; ask it why */
    provider_past_grant: true;
    /**
     * a provider reports no input tokens, so prompts are free; set `zero_usage: missing` for the
     * model
     */
    provider_reported_zero: true;
  }
}
