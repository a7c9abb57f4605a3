// The bill of one admitted request: meters its answer, keeps back the end of the answer until the
// charge is durable, and settles the hold once. `billing/README.md` has the table of endings and
// their charges.

import { create } from "@bufbuild/protobuf";
import {
  type Attempt,
  InputCategory,
  Outcome,
  type Receipt,
} from "../../gen/gateway/billing/v1/billing_pb.ts";
import type { Usage } from "../../gen/gateway/common/v1/usage_pb.ts";
import { Format } from "../../gen/gateway/inference/v1/content_pb.ts";
import {
  BlockStopSchema,
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
import { genaiTokens } from "./genai-metrics.ts";
import type { InputCounts } from "./input-counts.ts";
import { type BillableUsage, Meter } from "./meter.ts";
import type { Prepared } from "./prepare.ts";
import { estimatedTokensOf } from "./prompt-size.ts";

/** Longest wait for a provider to report the usage of an answer whose client has left. */
const lastUsageMs = 2_000;
/** Longest wait of a complete answer for its charge, while the ledger is unavailable. */
const settleMaxWaitMs = 60_000;

/** The phase of the answer in which the client left. It decides the charge. */
type LeftDuring = "before acceptance" | "before content" | "content" | "ending";

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
  readonly #meter: Meter;
  readonly #trace: TraceScope | undefined;
  readonly #stopWatching: () => void;
  #hold: Hold;
  #answer: ProviderAnswer | undefined;
  /** True while a provider has the whole request and has not answered with an error status. */
  #isAccepted = false;
  #leftDuring: LeftDuring | undefined;
  #cancelLastUsage = () => {};
  #failure: unknown;
  /** True for an answer that came in one piece and is shown in one: all of it is its end. */
  #isWhole = false;
  /** The end of the answer, which waits for the charge. */
  readonly #end: Event[] = [];
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
    this.#meter = new Meter({
      countedInput: estimatedTokensOf(prepared.size),
      writesLiveLong: prepared.size.mostExpensiveInput === InputCategory.CACHE_WRITE_1H,
      contextTokens: prepared.target.model.contextTokens,
      grantedOutput: hold.grantedOutput,
      zeroUsage: prepared.target.model.zeroUsage,
    });
    if (client.aborted) this.leave();
    const { requestId, payer } = hold;
    const { accountId } = payer;
    this.#stopWatching = parts.holds.watch({ accountId, requestId }, () =>
      this.#meter.movedUsage(),
    );
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
    this.#meter.mayCut = !answer.isPlain;
    this.#isWhole = answer.isPlain && this.#prepared.request.stream !== true;
  }

  /** Throws when the gateway has cancelled the request, or its client has left. */
  throwIfEnded(): void {
    if (this.#active.cancelReason) throw this.#active.cancelReason.error;
    if (this.#client.aborted) throw new ApiError("cancelled");
  }

  /**
   * Meters the events of one read. Returns those that may be relayed before the charge, and keeps
   * back those of the end of the answer.
   */
  add(received: Event[]): Event[] {
    const events = this.#meter.mayReachGrant(received) ? withoutRuns(received) : received;
    const beforeEnd = this.#meter.fold(events);
    const before = this.#isWhole ? 0 : beforeEnd;
    const shown = before < events.length ? events.slice(0, before) : events;
    for (const event of events.slice(before, this.#meter.cutIndex))
      if (!isProgress(event)) this.#end.push(event);
    if (this.isCut) this.#stopAtGrant();
    return this.#meter.hasProgress ? shown.filter((event) => !isProgress(event)) : shown;
  }

  /**
   * Hands deltas to `take` and meters them, if they have no other effect and may be relayed now.
   * Returns false if nothing was done: they belong to `add`.
   */
  relay(events: readonly Event[], take: TakeDeltas): boolean {
    const mayRelay =
      this.#answer !== undefined &&
      !this.#meter.ending &&
      this.#active.cancelReason === undefined &&
      this.#leftDuring === undefined &&
      events.every(({ kind }) => kind.case === "blockDelta") &&
      !this.#meter.mayReachGrant(events);
    if (!mayRelay || !take(events)) return false;
    this.#meter.fold(events);
    return true;
  }

  /** True when the answer reached its grant and was cut: it ends before its provider ends it. */
  get isCut(): boolean {
    return this.#meter.cutIndex !== undefined;
  }

  /**
   * Resizes the hold to the input that the provider reported. Call it after `add`. Returns
   * undefined if the hold fits already. If the credits do not suffice before the first content,
   * throws, and the request costs nothing. If they do not suffice after content, the hold and its
   * limit on the charge stay.
   */
  coverInput(): Promise<void> | undefined {
    const reports = this.#meter.takeInputReports();
    const isCovered = reports.every(({ usage }) => this.#parts.holds.fits(this.#hold, usage));
    return isCovered ? undefined : this.#resize(reports);
  }

  async #resize(reports: ReturnType<Meter["takeInputReports"]>): Promise<void> {
    for (const { usage, afterContent } of reports) {
      try {
        this.#hold = await this.#parts.holds.resize(this.#hold, usage);
      } catch (error) {
        if (afterContent) return;
        const apiError = toApiError(error);
        const outcome = lacksFunds(apiError) ? Outcome.INPUT_ABOVE_HOLD : Outcome.GATEWAY_FAILED;
        this.#active.cancel({ error: apiError, outcome });
        throw apiError;
      }
    }
  }

  /**
   * Charges a complete answer. Returns its receipt, and the end of the answer, which may now be
   * relayed. Throws `upstream_error` when the answer is not complete, and `billing_unavailable`
   * when the ledger stays unavailable. A stream is charged even then, because all but its end was
   * delivered; a plain answer is not.
   */
  async settle(): Promise<{ receipt: Receipt; end: Event[] }> {
    if (!this.#meter.complete && !this.isCut) {
      const message = "The model provider ended its answer early.";
      throw new ApiError("upstream_error", { message });
    }
    const total = this.#meter.billableTotal();
    this.#countZeroInput();
    this.#learnInput(total.usage);
    const settlement = this.#charge(total, Outcome.COMPLETED);
    const giveUp = () => {
      if (this.#prepared.request.stream)
        throw new ApiError("billing_unavailable", { message: chargedLater });
      const nothing = this.#endingOf(this.#meter.billableNothing(), Outcome.GATEWAY_FAILED);
      const { requestId, payer } = this.#hold;
      this.#parts.holds.amend({ accountId: payer.accountId, requestId }, nothing);
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
   * to report its usage, waits up to two seconds for it. Returns undefined after a settlement.
   */
  close(): Promise<void> | undefined {
    return this.#settlement === undefined ? this.#closeUnsettled() : undefined;
  }

  async #closeUnsettled(): Promise<void> {
    if (this.#failure === undefined) this.leave();
    await this.#readLastUsage();
    this.settleInterrupted();
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
   * The client has hung up. Stops the provider at once, unless its next report would make the bill
   * exact. No effect after a settlement.
   */
  leave(): void {
    if (this.#leftDuring !== undefined || this.#active.cancelReason || this.#settlement) return;
    const meter = this.#meter;
    if (!this.#isAccepted) this.#leftDuring = "before acceptance";
    else if (meter.ending) this.#leftDuring = "ending";
    else if (meter.contentBegan) this.#leftDuring = "content";
    else this.#leftDuring = "before content";
    if (this.#leftDuring !== "ending") meter.freezeOutput();
    const abort = () => this.#active.provider.abort();
    if (!this.#awaitsUsage()) abort();
    else this.#cancelLastUsage = this.#parts.clock.after(lastUsageMs, abort);
  }

  #awaitsUsage(): boolean {
    if (this.#leftDuring === "before content") return !this.#meter.hasInput;
    return this.#leftDuring === "ending" && !this.#meter.hasTotal;
  }

  async #readLastUsage(): Promise<void> {
    const events = this.#answer?.events[Symbol.asyncIterator]();
    while (events && this.#awaitsUsage()) {
      // A failed or aborted provider ends the wait.
      const read = await events.next().catch(() => undefined);
      if (read === undefined || read.done) return;
      this.#meter.fold(read.value);
      await this.#growForCharge();
    }
  }

  // The reported input is charged as far as the hold covers it. The client has left, so there is
  // nothing to fail.
  async #growForCharge(): Promise<void> {
    for (const { usage } of this.#meter.takeInputReports())
      this.#hold = await this.#parts.holds.resize(this.#hold, usage).catch(() => this.#hold);
  }

  /** Stops the provider and charges an incomplete answer. Does nothing after a settlement. */
  settleInterrupted(): void {
    if (this.#settlement !== undefined) return;
    this.#active.provider.abort();
    const { outcome, billable } = this.#interruption();
    // The receipt is not needed. The batch queue retries until the charge is durable.
    this.#charge(billable, outcome).catch(() => undefined);
  }

  /** The outcome and the billable usage of an answer that did not reach its end. */
  #interruption(): { outcome: Outcome; billable: BillableUsage } {
    const meter = this.#meter;
    const nothing = meter.billableNothing();
    const produced = () => (meter.ending ? meter.billableTotal() : meter.billableNow());
    switch (this.#leftDuring) {
      case "before acceptance":
        return { outcome: Outcome.CLIENT_LEFT_BEFORE_ACCEPTANCE, billable: nothing };
      case "before content":
        return { outcome: Outcome.CLIENT_LEFT_BEFORE_CONTENT, billable: meter.billableInput() };
      case "content":
        return { outcome: Outcome.CLIENT_LEFT, billable: meter.billableNow() };
      case "ending":
        return { outcome: Outcome.CLIENT_LEFT, billable: meter.billableTotal() };
    }
    const reason = this.#active.cancelReason;
    if (reason) {
      const isFree =
        reason.outcome === Outcome.INPUT_ABOVE_HOLD || reason.outcome === Outcome.GATEWAY_FAILED;
      return {
        outcome: reason.outcome,
        billable: this.#isAccepted && !isFree ? produced() : nothing,
      };
    }
    const failure = toApiError(this.#failure).reason;
    const billable = meter.contentBegan ? produced() : nothing;
    if (failure === "internal") return { outcome: Outcome.GATEWAY_FAILED, billable };
    if (!meter.contentBegan) return { outcome: Outcome.PROVIDER_FAILED, billable };
    const isLate = failure === "timeout";
    return { outcome: isLate ? Outcome.TIME_LIMIT : Outcome.PROVIDER_BROKE, billable };
  }

  #charge(billable: BillableUsage, outcome: Outcome): Promise<Receipt> {
    if (this.#settlement === undefined) {
      this.#stopWatching();
      this.#cancelLastUsage();
      this.#usage = chargedUsage(billable.usage, this.#hold.grantedOutput);
      this.#settlement = this.#parts.holds.settle(this.#hold, this.#endingOf(billable, outcome));
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
      "gen_ai.response.finish_reasons": this.#meter.stopReason && [this.#meter.stopReason],
    });
  }

  #endingOf({ usage, basis }: BillableUsage, outcome: Outcome): Ending {
    return { usage, basis, outcome, attempts: this.#attempts() };
  }

  #attempts(): Attempt[] {
    return this.#answer?.attempts() ?? [];
  }

  #stopAtGrant(): void {
    this.#active.provider.abort();
    const { provider } = this.#answer ?? {};
    const grantedOutput = this.#hold.grantedOutput;
    const { output, thinking } = this.#meter.billableNow().usage;
    this.#parts.log.error(
      {
        code: "provider_past_grant",
        provider,
        requestId: this.#hold.requestId,
        grantedOutput,
        tokens: output + thinking,
      },
      "the provider generated more output than its limit: its answer was cut",
    );
    const index = this.#meter.openBlock;
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
    if (!this.#meter.hasInput) return;
    const { model, payer } = this.#hold;
    const tokens = input + cacheRead + cacheWrite5m + cacheWrite1h;
    const { accountId } = payer;
    this.#parts.inputCounts.learn({ accountId, model }, this.#prepared.size, tokens);
  }

  #countZeroInput(): void {
    if (!this.#meter.reportedZeroInput) return;
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
    const last = end.findLastIndex(({ kind }) => kind.case === "messageDelta");
    const event = end[last];
    if (event?.kind.case !== "messageDelta") return end;
    const delta = event.kind.value;
    const charged = chargedUsage(usage, this.#hold.grantedOutput);
    const shown = this.#meter.shownUsage(charged, delta.usage);
    const cost = { $typeName: "gateway.inference.v1.Cost", requestId, amountMicrocredits } as const;
    const value: MessageDelta = { ...delta, usage: shown ?? delta.usage, cost };
    return end.with(last, eventOf({ case: "messageDelta", value }));
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

function lacksFunds({ reason }: ApiError): boolean {
  return (
    reason === "credits_exhausted" || reason === "credits_held" || reason === "monthly_cap_reached"
  );
}
