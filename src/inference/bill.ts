// The bill of one admitted request: its hold, its checkpoints, and its settlement, once.

import type { Attempt, Receipt } from "../../gen/gateway/billing/v1/receipt_pb.ts";
import type { LeftOut } from "../../gen/gateway/common/v1/left_out_pb.ts";
import type { Usage } from "../../gen/gateway/common/v1/usage_pb.ts";
import { type Clock, withTimeout } from "../base/clock.ts";
import { ApiError, toApiError } from "../base/errors.ts";
import { leftOutReasonName } from "../base/left-out.ts";
import type { Log } from "../base/log.ts";
import { chargedUsage, type Ending, type Hold, type Holds } from "../billing/billing.ts";
import type { PriceFacts } from "../config/catalog.ts";
import type { ProviderAnswer } from "../providers/providers.ts";
import type { TraceScope } from "../tracing/tracing.ts";
import type { Counted } from "./counted.ts";
import type { Billed } from "./endings.ts";
import { genaiTokens } from "./genai-metrics.ts";
import type { Prepared } from "./prepare.ts";
import type { InputCounts } from "./prompt-size.ts";
import type { Reported } from "./reported.ts";

/** Longest wait of a complete answer for its charge, while the ledger is unavailable. */
const settleMaxWaitMs = 60_000;

export type BillParts = {
  readonly holds: Holds;
  readonly log: Log;
  /** As `Inference.counters`. */
  readonly counters: { providerReportedZero: number };
  readonly inputCounts: InputCounts;
  readonly clock: Clock;
};

/** What is known of the answer that is billed. */
export interface Answered {
  /** True if the client asked for an answer in one piece. */
  readonly isPlain: boolean;
  readonly reported: Reported;
  readonly counted: Counted;
  /** Absent until a provider has begun it. */
  readonly provider: ProviderAnswer | undefined;
  /** Parts of the request that the provider did not get. */
  readonly leftOut: readonly LeftOut[];
  /** The calls to providers so far, oldest first, under these conditions. */
  attempts(facts: PriceFacts): Attempt[];
  /** The usage to store while it runs. Undefined when nothing came since the last call. */
  movedUsage(): Usage | undefined;
}

/** What a bill needs of its request. */
type BilledRequest = Pick<Prepared, "applied" | "bounds" | "size">;

export class Bill {
  readonly #parts: BillParts;
  readonly #prepared: BilledRequest;
  readonly #answer: Answered;
  readonly #trace: TraceScope | undefined;
  readonly #stopWatching: () => void;
  #hold: Hold;
  /** Resizes the hold to the reported input. Never rejects. */
  resizing: Promise<void> | undefined;
  #settlement: Promise<Receipt> | undefined;
  #usage: Usage | undefined;

  constructor(
    parts: BillParts,
    of: {
      readonly prepared: BilledRequest;
      readonly hold: Hold;
      readonly answer: Answered;
      readonly trace: TraceScope | undefined;
    },
  ) {
    const { prepared, hold, answer, trace } = of;
    this.#parts = parts;
    this.#prepared = prepared;
    this.#hold = hold;
    this.#answer = answer;
    this.#trace = trace;
    const { requestId, payer } = hold;
    const { accountId } = payer;
    this.#stopWatching = answer.isPlain
      ? () => {}
      : parts.holds.watch({ accountId, requestId }, () => answer.movedUsage());
  }

  get isSettled(): boolean {
    return this.#settlement !== undefined;
  }

  /** Grows the hold to the reported input. The answer does not wait for it: its charge does. */
  resize(): void {
    const input = this.#answer.reported.newInput();
    if (input === undefined) return;
    const { holds } = this.#parts;
    if (this.resizing === undefined && holds.fits(this.#hold, input)) return;
    const resize = async () => {
      await this.resizing;
      try {
        this.#hold = await holds.resize(this.#hold, input);
      } catch {
        // The charge is limited to the hold as it is. What the pool lacks is overrun.
      }
    };
    this.resizing = resize();
  }

  /**
   * Charges a complete answer. Throws `billing_unavailable` when the ledger stays unavailable. A
   * stream is charged even then, because all but its end was delivered; a plain answer is billed as
   * `undelivered`.
   */
  settle(total: Billed, undelivered: Billed): Promise<Receipt> {
    this.#countZeroInput();
    this.#learnInput(total.usage);
    const settlement = this.#charge(total);
    const giveUp = () => {
      if (!this.#answer.isPlain)
        throw new ApiError("billing_unavailable", { message: chargedLater });
      const { requestId, payer } = this.#hold;
      const ending = this.#endingOf(undelivered);
      this.#parts.holds.amend({ accountId: payer.accountId, requestId }, ending);
      throw new ApiError("billing_unavailable", { message: notDelivered, retryAfterMs: 1000 });
    };
    return withTimeout(settlement, settleMaxWaitMs, giveUp, this.#parts.clock);
  }

  /** Charges an incomplete answer. The batch queue retries until the charge is durable. */
  chargeLater(billed: Billed): void {
    this.#charge(billed).catch(() => undefined);
  }

  /** The way that the request went, once it is settled. */
  summary(): { provider: string; model: string; usage: Usage | undefined } {
    const provider = this.#answer.provider?.provider ?? "";
    return { provider, model: this.#hold.model, usage: this.#usage };
  }

  #charge(billed: Billed): Promise<Receipt> {
    if (this.#settlement === undefined) {
      this.#stopWatching();
      this.#usage = chargedUsage(billed.usage, this.#hold.grantedOutput);
      const ending = this.#endingOf(billed);
      const { requestId } = this.#hold;
      const leftOut = this.#answer.leftOut.map(({ where, what, why }) => ({
        ...{ where, what, why: leftOutReasonName(why) },
      }));
      if (leftOut.length > 0)
        this.#parts.log.debug({ requestId, leftOut }, "a provider did not get all of a request");
      const settle = () => this.#parts.holds.settle(this.#hold, ending);
      this.#settlement = this.resizing ? this.resizing.then(settle) : settle();
      if (this.#trace) this.#traceSettlement(this.#trace, this.#settlement, this.#usage);
    }
    return this.#settlement;
  }

  #traceSettlement(trace: TraceScope, settlement: Promise<Receipt>, usage: Usage): void {
    const span = trace.span("settle");
    settlement.then(
      (receipt) => span.end({ "gateway.microcredits": Number(receipt.chargedMicrocredits) }),
      (error: unknown) => span.end({}, toApiError(error).reason),
    );
    const tokens = genaiTokens(usage);
    const { stopReason } = this.#answer.reported;
    this.#answer.provider?.span?.set({
      "gen_ai.usage.input_tokens": tokens.input,
      "gen_ai.usage.output_tokens": tokens.output,
      "gen_ai.response.finish_reasons": stopReason && [stopReason],
    });
  }

  #endingOf({ usage, basis, outcome }: Billed): Ending {
    const { leftOut, reported } = this.#answer;
    const applied = this.#prepared.applied(reported.applied, leftOut);
    const attempts = this.#answer.attempts(applied.facts);
    return { usage, basis, outcome, attempts, leftOut, appliedPrice: applied.price };
  }

  #learnInput({ input, cacheRead, cacheWrite5m, cacheWrite1h }: Usage): void {
    if (!this.#answer.reported.hasInput) return;
    const { model, payer } = this.#hold;
    const tokens = input + cacheRead + cacheWrite5m + cacheWrite1h;
    const { accountId } = payer;
    const { inputCounts } = this.#parts;
    inputCounts.learn({ accountId, model }, this.#prepared.size, tokens);
    inputCounts.learnExcess({ accountId, model }, tokens - this.#prepared.bounds.input);
  }

  #countZeroInput(): void {
    const { reported, counted, provider: answer } = this.#answer;
    if (!reported.hasInput || reported.inputSum > 0 || !counted.began) return;
    this.#parts.counters.providerReportedZero += 1;
    const { provider } = answer ?? {};
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
}

const notDelivered =
  "The ledger is not reachable, so this answer was not delivered. It costs nothing, unless its " +
  "charge was being written at that moment; its receipt shows the charge.";
const chargedLater =
  "The ledger is not reachable. The answer is complete and will be charged when the ledger is " +
  "reachable again.";

declare module "../base/log.ts" {
  interface LogCodes {
    /**
     * a provider reports no input tokens, so prompts are free; set `zero_usage: missing` for the
     * model
     */
    provider_reported_zero: true;
  }
}
