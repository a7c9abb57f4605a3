// An answer under way: what of it may be seen, what is held back for the charge, and what is owed
// at each moment.

import {
  type Attempt,
  Basis,
  InputCategory,
  Outcome,
  type Receipt,
} from "../../gen/gateway/billing/v1/billing_pb.ts";
import type { Event } from "../../gen/gateway/inference/v1/event_pb.ts";
import { ApiError, toApiError } from "../base/errors.ts";
import { withTimeout } from "../base/timeout.ts";
import type { Ending, Hold, Holds } from "../billing/billing.ts";
import { costMicro } from "../billing/billing.ts";
import type { ProviderRequest, Providers } from "../providers/providers.ts";
import type { ActiveRequest, ActiveRequests } from "./active-requests.ts";
import { type BillableUsage, Meter, showCharged } from "./meter.ts";
import type { Prepared } from "./prepare.ts";
import { affinityOf } from "./prepare.ts";
import { estimatedTokensOf } from "./prompt-size.ts";

export type MeteredAnswerParts = {
  readonly holds: Holds;
  readonly providers: Providers;
  readonly activeRequests: ActiveRequests;
  /** Longest life of a request. */
  readonly requestMaxMs: number;
};

/** A client that left is worth this wait for figures that would make its bill exact. */
const lastFiguresMs = 2_000;
/** How long the end of an answer waits for a ledger that is away. */
const settlePatienceMs = 60_000;

/** The answer to one admitted request. */
export class MeteredAnswer {
  /** The end of the answer, which waits for the charge. */
  readonly #end: Event[] = [];
  readonly #parts: MeteredAnswerParts;
  readonly #prepared: Prepared;
  readonly #running: ActiveRequest;
  readonly #client: AbortSignal;
  readonly #meter: Meter;
  readonly #attempts: Attempt[] = [];
  readonly #timer: NodeJS.Timeout;
  #hold: Hold;
  #reads: AsyncIterator<Event[], undefined> | undefined;
  #accepted = false;
  #inputFitted = false;
  /** Whether content was shown. */
  #isDelivered = false;
  #failure: unknown;
  #settled: Promise<Receipt> | undefined;
  #lastFigures: NodeJS.Timeout | undefined;

  /** `client` fires when the client hangs up. */
  constructor(
    parts: MeteredAnswerParts,
    {
      prepared,
      hold,
      running,
      client,
    }: { prepared: Prepared; hold: Hold; running: ActiveRequest; client: AbortSignal },
  ) {
    this.#parts = parts;
    this.#prepared = prepared;
    this.#hold = hold;
    this.#running = running;
    this.#client = client;
    this.#meter = new Meter(
      estimatedTokensOf(prepared.size),
      prepared.size.mostExpensiveInput === InputCategory.CACHE_WRITE_1H,
    );
    this.#timer = setTimeout(() => running.cancel(tooLong), parts.requestMaxMs);
    client.addEventListener("abort", this.#onHangUp, { once: true });
    parts.holds.watch(hold.requestId, () => this.#meter.movedUsage());
    // At once, if the gateway ended the request while it was being admitted: its client may read no
    // further than the admission.
    running.onCancel(() => this.close());
  }

  /**
   * The provider's next read; the first call begins the answer. What it fails with goes to
   * `failed`.
   */
  read(): Promise<IteratorResult<Event[], undefined>> {
    return this.#reads === undefined ? this.#begin() : this.#reads.next();
  }

  /**
   * The events of a read that may be relayed before the charge; there may be none. What it throws
   * or fails with goes to `failed`.
   */
  take(events: Event[]): Event[] | Promise<Event[]> {
    const before = this.#meter.fold(events);
    const fitting = this.#inputFitted ? undefined : this.#fitInput();
    return fitting === undefined
      ? this.#shown(events, before)
      : fitting.then(() => this.#shown(events, before));
  }

  /** Call it after the last read. Throws when the answer is not all there. */
  checkComplete(): void {
    if (this.#client.aborted) throw clientLeft();
    if (!this.#meter.complete)
      throw new ApiError("upstream_error", {
        message: "The model provider ended its answer early.",
      });
  }

  /** Remembers how the answer failed; returns what the client is to be told. */
  failed(error: unknown): unknown {
    this.#failure =
      this.#running.cancelReason?.error ?? (this.#client.aborted ? clientLeft() : error);
    return this.#failure;
  }

  /**
   * The charge of a complete answer, and its end, which may be shown now. Throws
   * `billing_unavailable` when the ledger stays away: a stream is charged all the same, since all
   * but its end was delivered, and a plain answer nothing.
   */
  async settled(): Promise<{ receipt: Receipt; end: Event[] }> {
    const owed = this.#meter.billableTotal();
    const ending = this.#endingOf(owed, Outcome.COMPLETED);
    const receipt = await withTimeout(this.#settle(ending), settlePatienceMs, () => {
      if (this.#prepared.request.stream)
        throw new ApiError("billing_unavailable", { message: chargedLater });
      // The lane reads what it writes when it comes to it; only what it was writing just then
      // stays.
      Object.assign(ending, this.#endingOf(this.#meter.nothing(), Outcome.GATEWAY_FAILED));
      throw new ApiError("billing_unavailable", { message: notDelivered, retryAfterMs: 1000 });
    });
    // Somebody settled by older figures, so this client must not see an end that says otherwise.
    if (receipt.outcome !== Outcome.COMPLETED)
      throw this.#running.cancelReason?.error ?? new ApiError("gateway_unavailable");
    return {
      receipt,
      end: owed.basis === Basis.REPORTED ? this.#end : showCharged(this.#end, owed.usage),
    };
  }

  /** Ends whatever still runs and charges it. Harmless when repeated. */
  close(): void {
    this.#parts.activeRequests.close(this.#running);
    clearTimeout(this.#timer);
    clearTimeout(this.#lastFigures);
    this.#client.removeEventListener("abort", this.#onHangUp);
    if (this.#settled !== undefined) return;
    this.#running.stopProvider();
    const { outcome, owed } = this.#interrupted();
    // Nobody waits for this receipt, and the lane keeps the charge until the ledger takes it.
    this.#settle(this.#endingOf(owed, outcome)).catch(() => undefined);
  }

  async #begin(): Promise<IteratorResult<Event[], undefined>> {
    if (this.#client.aborted) throw clientLeft();
    this.#checkEnded();
    this.#reads = this.#parts.providers.generate(this.#ask())[Symbol.asyncIterator]();
    return this.#reads.next();
  }

  #ask(): ProviderRequest {
    const { request } = this.#prepared;
    return {
      request: { ...request, maxTokens: this.#hold.grantedOutput },
      affinity: affinityOf(this.#hold.payer.keyId, request),
      signal: this.#running.signal,
      attempts: this.#attempts,
      onAccepted: (isAccepted) => {
        this.#accepted = isAccepted;
      },
    };
  }

  // What the gateway has ended is settled, so what the provider had sent ahead must not follow.
  #checkEnded(): void {
    if (this.#running.cancelReason) throw this.#running.cancelReason.error;
  }

  #shown(events: Event[], before: number): Event[] {
    this.#checkEnded();
    if (before < events.length) this.#end.push(...(before === 0 ? events : events.slice(before)));
    if (this.#client.aborted) {
      this.#onHangUp();
      return [];
    }
    this.#isDelivered ||= before > 0 && this.#meter.contentBegan;
    return before === events.length ? events : events.slice(0, before);
  }

  // The estimate that the hold was made for is corrected once, as soon as the provider reports its
  // input: most do so before anything is relayed; some with the end, when what the answer costs is
  // known as well.
  #fitInput(): Promise<void> | undefined {
    const meter = this.#meter;
    const input = meter.reportedInput();
    if (input === undefined) return undefined;
    this.#inputFitted = true;
    const { usage } = meter.ending ? meter.billableTotal() : { usage: input };
    const grantedOutput = meter.ending ? usage.output + usage.thinking : this.#hold.grantedOutput;
    if (meter.ending && costMicro(this.#hold.price, usage) <= this.#hold.amountMicro)
      return undefined;
    return this.#parts.holds.resize({ ...this.#hold, grantedOutput }, usage).then(
      (hold) => {
        this.#hold = hold;
      },
      (error: unknown) => {
        // It costs what was held.
        if (this.#isDelivered) return;
        const apiError = toApiError(error);
        this.#running.cancel({
          error: apiError,
          outcome: lacksFunds(apiError) ? Outcome.INPUT_ABOVE_HOLD : Outcome.GATEWAY_FAILED,
        });
        throw apiError;
      },
    );
  }

  // Nothing more can be delivered, so the provider is stopped: at once, unless a moment more makes
  // the bill exact.
  readonly #onHangUp = (): void => {
    const isWorthAMoment =
      this.#accepted && (this.#meter.ending || !this.#meter.contentBegan) && !this.#meter.complete;
    const hasInput = this.#meter.reportedInput() !== undefined;
    if (!isWorthAMoment || (hasInput && !this.#meter.ending)) this.#running.stopProvider();
    else this.#lastFigures ??= setTimeout(() => this.#running.stopProvider(), lastFiguresMs);
  };

  #endingOf({ usage, basis }: BillableUsage, outcome: Outcome): Ending {
    return { usage, basis, outcome, attempts: this.#attempts };
  }

  #settle(ending: Ending): Promise<Receipt> {
    this.#settled ??= this.#parts.holds.settle(this.#hold, ending);
    return this.#settled;
  }

  /** What an answer that did not come to its end costs, and what it is recorded as. */
  #interrupted(): { outcome: Outcome; owed: BillableUsage } {
    const meter = this.#meter;
    const produced = () => (meter.ending ? meter.billableTotal() : meter.billableNow());
    const by = this.#running.cancelReason;
    if (by) {
      const isUnfit =
        by.outcome === Outcome.INPUT_ABOVE_HOLD || by.outcome === Outcome.GATEWAY_FAILED;
      return {
        outcome: by.outcome,
        owed: this.#accepted && !isUnfit ? produced() : meter.nothing(),
      };
    }
    if (this.#failure === undefined || this.#client.aborted) {
      if (!this.#accepted)
        return { outcome: Outcome.CLIENT_LEFT_BEFORE_ACCEPTANCE, owed: meter.nothing() };
      if (!meter.contentBegan)
        return { outcome: Outcome.CLIENT_LEFT_BEFORE_CONTENT, owed: meter.inputOnly() };
      return { outcome: Outcome.CLIENT_LEFT, owed: produced() };
    }
    const { reason } = toApiError(this.#failure);
    const owed = meter.contentBegan ? produced() : meter.nothing();
    if (reason === "internal") return { outcome: Outcome.GATEWAY_FAILED, owed };
    if (!meter.contentBegan) return { outcome: Outcome.PROVIDER_FAILED, owed };
    return { outcome: reason === "timeout" ? Outcome.TIME_LIMIT : Outcome.PROVIDER_BROKE, owed };
  }
}

const tooLong = {
  error: new ApiError("timeout", { message: "The answer took longer than this gateway allows." }),
  outcome: Outcome.TIME_LIMIT,
};

const notDelivered =
  "The ledger is not reachable, so this answer was not delivered. It costs nothing, unless its charge was being written just then: its receipt tells.";
const chargedLater =
  "The ledger is not reachable; the answer is complete, and is charged when it is back.";

function lacksFunds({ reason }: ApiError): boolean {
  return (
    reason === "credits_exhausted" || reason === "credits_held" || reason === "monthly_cap_reached"
  );
}

function clientLeft(): ApiError {
  return new ApiError("cancelled");
}
