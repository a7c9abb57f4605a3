// One answer, on its way from a provider to its client. Counts the events that are handed on, keeps
// the end back until the charge is durable, and cuts an answer that exceeds its grant. One gate
// keeps everything back: until the hold is durable, and while this process may have been declared
// dead.

import { create } from "@bufbuild/protobuf";
import { Outcome, type Receipt } from "../../gen/gateway/billing/v1/receipt_pb.ts";
import type { LeftOut } from "../../gen/gateway/common/v1/left_out_pb.ts";
import type { Usage } from "../../gen/gateway/common/v1/usage_pb.ts";
import {
  BlockStopSchema,
  type Cost,
  type Event,
  type MessageDelta,
  MessageDeltaSchema,
  MessageStopSchema,
} from "../../gen/gateway/inference/v1/event_pb.ts";
import type { GenerateRequest } from "../../gen/gateway/inference/v1/inference_pb.ts";
import type { Clock } from "../base/clock.ts";
import { ApiError, toApiError } from "../base/errors.ts";
import type { Log } from "../base/log.ts";
import { chargedUsage } from "../billing/billing.ts";
import type { PriceFacts } from "../config/catalog.ts";
import type { Generation } from "../contract/generation.ts";
import { newEvent, progressOf } from "../formats/events.ts";
import { withoutRuns } from "../formats/text-run.ts";
import type { AnswerReader, ProviderAnswer, ProviderRun } from "../providers/providers.ts";
import type { ActiveRequest } from "./active-requests.ts";
import type { Answered, Bill } from "./bill.ts";
import { Counted, Grant } from "./counted.ts";
import { type Billed, chargeAt, type EndingName, seenUsage } from "./endings.ts";
import type { Prepared } from "./prepare.ts";
import { estimatedTokensOf } from "./prompt-size.ts";
import { Reported } from "./reported.ts";

/** Longest wait for a provider to report the usage of an answer whose client has left. */
const figuresMs = 2_000;
/** Longest wait for a provider's status after its client has left: a refused prompt is free. */
const statusMs = 10_000;

/** How far an answer has come. Where its account ends the request, it decides the charge. */
type Phase = "before acceptance" | "before content" | "content" | "ending";

export type AnswerParts = {
  readonly log: Log;
  readonly clock: Clock;
  /** As `Billing.confirmAlive`. */
  readonly confirmAlive: () => Promise<void> | undefined;
};

export class Answer implements AnswerReader, Answered {
  readonly takesRuns: boolean;
  readonly isPlain: boolean;
  /** True if a provider is called before the hold is durable. */
  readonly isOverlapped: boolean;
  readonly reported: Reported;
  readonly counted = new Counted();
  provider: ProviderAnswer | undefined;
  /** When the first event was handed on, by `performance.now()`. */
  firstEventMs: number | undefined;
  readonly #parts: AnswerParts;
  readonly #generation: Generation;
  readonly #prepared: Prepared;
  readonly #active: ActiveRequest;
  readonly #grant: Grant;
  /** Absent until the hold is durable: nothing that a provider does before it is paid for. */
  #bill: Bill | undefined;
  #run: ProviderRun | undefined;
  /** True while a provider has the whole request and has not answered with an error status. */
  #isAccepted = false;
  /** False: the answer is not the one that the client gets. */
  readonly #held = Promise.withResolvers<boolean>();
  /** True until the sink has caught up. */
  #isBehind = false;
  #leftDuring: Phase | undefined;
  #cancelWait = () => {};
  #failure: unknown;
  /** True for an answer that came in one piece and is shown in one: all of it is its end. */
  #isWhole = false;
  /** True when it reached its grant and was cut: it ends before its provider ends it. */
  #isCut = false;
  /** True when something came that is not stored yet. */
  #hasMoved = false;
  /** The end of the answer, which waits for the charge. */
  readonly #end: Event[] = [];
  #leftOutByTarget: readonly LeftOut[] = [];

  constructor(
    parts: AnswerParts,
    of: {
      readonly generation: Generation;
      readonly prepared: Prepared;
      /** The most tokens that it may have. */
      readonly grantedOutput: number;
      readonly active: ActiveRequest;
      readonly isOverlapped?: boolean;
    },
  ) {
    const { generation, prepared, grantedOutput, active, isOverlapped = false } = of;
    this.#parts = parts;
    this.#generation = generation;
    this.#prepared = prepared;
    this.#active = active;
    this.isOverlapped = isOverlapped;
    this.takesRuns = generation.sink.takesRuns;
    this.isPlain = prepared.request.origin?.streamed === false;
    this.#grant = new Grant(grantedOutput);
    this.reported = new Reported({
      countedInput: estimatedTokensOf(prepared.size),
      writesLiveLong: prepared.size.writesLiveLong,
      contextTokens: prepared.target.model.contextTokens,
      webSearches: prepared.bounds.webSearches,
      zeroUsage: prepared.target.model.zeroUsage,
    });
  }

  get isAccepted(): boolean {
    return this.#isAccepted;
  }

  accepted(isAccepted: boolean): void {
    this.#isAccepted = isAccepted;
    if (isAccepted && this.#bill) this.#generation.sink.accepted();
  }

  mayRepeat(): Promise<boolean> {
    return this.#held.promise;
  }

  begin(provider: ProviderAnswer): void {
    this.provider = provider;
    this.#grant.mayCut = !provider.isPlain;
    this.#isWhole = provider.isPlain && this.isPlain;
    if (this.#bill) this.#forgetPrompt();
  }

  /** Opens the gate: the hold is durable, and the client knows of it. */
  open(bill: Bill): void {
    this.#bill = bill;
    if (this.#generation.client.aborted) {
      // It left before the hold: nothing is paid for, whatever a provider did.
      this.#isAccepted = false;
      this.leave();
    }
    if (this.#isAccepted) this.#generation.sink.accepted();
    if (this.provider) this.#forgetPrompt();
    this.#held.resolve(true);
  }

  /** Its hold was not placed: nothing of it is handed on. */
  discard(): void {
    this.#held.resolve(false);
  }

  write(events: Event[]): Promise<unknown> | undefined {
    // The one gate: until the hold is durable, while the reader is behind, and while this process
    // may have been declared dead.
    if (!this.#bill) return this.#held.promise;
    if (this.#leftDuring !== undefined) {
      this.#readFigures(events);
      return undefined;
    }
    if (this.#isBehind) return this.#untilDrained();
    const alive = this.#parts.confirmAlive();
    if (alive) return alive;
    const shown = this.#isMiddle(events) ? events : this.#read(events);
    if (shown.length === 0) return undefined;
    this.firstEventMs ??= performance.now();
    this.#isBehind = !this.#generation.sink.write(shown);
    this.#count(shown);
    return undefined;
  }

  async #untilDrained(): Promise<void> {
    // Where the reader is gone, the end of the answer may still decide its charge.
    await this.#generation.sink.drained().catch(() => undefined);
    this.#isBehind = false;
  }

  /** Resolves when its provider has ended it and all of it was handed on but its end. */
  async delivered(run: ProviderRun): Promise<void> {
    this.#run = run;
    const error = await run.ended;
    this.throwIfEnded();
    if (error && !this.#isCut) throw error;
  }

  /** Throws when the gateway has cancelled the request, or its client has left. */
  throwIfEnded(): void {
    if (this.#active.cancelReason) throw this.#active.cancelReason.error;
    if (this.#generation.client.aborted) throw new ApiError("cancelled");
  }

  attempts(facts: PriceFacts) {
    return this.#run?.attempts(facts) ?? [];
  }

  /** True for deltas that have no other effect. */
  #isMiddle(events: readonly Event[]): boolean {
    return (
      this.reported.phase === "running" &&
      !this.#isWhole &&
      events.every(({ kind }) => kind.case === "blockDelta") &&
      !this.#grant.mayReach(events, this.counted)
    );
  }

  #count(events: readonly Event[]): void {
    for (const event of events) this.counted.add(event);
    this.#hasMoved = true;
  }

  /**
   * Reads the reports of one read. Returns its events that may be handed on before the charge, and
   * keeps back those of the end of the answer.
   */
  #read(received: Event[]): Event[] {
    const [reported, counted, grant] = [this.reported, this.counted, this.#grant];
    const mayReach = grant.mayReach(received, counted);
    const events = mayReach ? withoutRuns(received) : received;
    let until = mayReach ? grant.cutAt(events, counted) : events.length;
    let beforeEnd = reported.phase === "running" ? until : 0;
    let hasProgress = false;
    for (let index = 0; index < until; index++) {
      const event = events[index];
      if (event === undefined) break;
      const wasRunning = reported.phase === "running";
      this.#report(event);
      if (wasRunning && reported.phase !== "running") beforeEnd = index;
      if (!progressOf(event)) continue;
      hasProgress = true;
      if (grant.isExceeded(reported)) until = index;
    }
    this.#hasMoved = true;
    this.#bill?.resize();
    const before = this.#isWhole ? 0 : Math.min(beforeEnd, until);
    for (const event of events.slice(before, until)) if (!progressOf(event)) this.#end.push(event);
    const shown = before < events.length ? events.slice(0, before) : events;
    const past = events[until];
    if (past) this.#cut(shown, past);
    return hasProgress ? shown.filter((event) => !progressOf(event)) : shown;
  }

  #report(event: Event): void {
    this.reported.read(event);
    if (event.kind.case === "messageStart") this.#leftOutByTarget = event.kind.value.leftOut;
  }

  /** Parts of the request that the provider did not get. */
  get leftOut(): readonly LeftOut[] {
    const { leftOut = [] } = this.#prepared.request.origin ?? {};
    return this.#leftOutByTarget.length === 0 ? leftOut : [...leftOut, ...this.#leftOutByTarget];
  }

  movedUsage(): Usage | undefined {
    if (!this.#hasMoved) return undefined;
    this.#hasMoved = false;
    return seenUsage(this.reported, this.counted);
  }

  /**
   * Charges a complete answer, and hands on its end. Throws `upstream_error` when it is not
   * complete, and the errors of `Bill.settle`.
   */
  async settle(bill: Bill): Promise<Receipt> {
    if (this.reported.phase !== "complete" && !this.#isCut) {
      const message = "The model provider ended its answer early.";
      throw new ApiError("upstream_error", { message });
    }
    this.firstEventMs ??= performance.now();
    this.#count(this.#end);
    const total = this.#billedAt("complete");
    const receipt = await bill.settle(total, this.#billedAt("undelivered"));
    // Another process has settled the request, by older usage. The client must not see an end that
    // contradicts its charge.
    if (receipt.outcome !== Outcome.COMPLETED)
      throw this.#active.cancelReason?.error ?? new ApiError("gateway_unavailable");
    const end = this.#chargedEnd(total.usage, receipt);
    if (end.length > 0) this.#generation.sink.write(end);
    return receipt;
  }

  /** Stores the failure of the answer. Returns the error for the client. */
  fail(error: unknown): unknown {
    const left = this.#generation.client.aborted ? new ApiError("cancelled") : undefined;
    this.#failure = this.#active.cancelReason?.error ?? left ?? error;
    return this.#failure;
  }

  /** The reason of its failure. */
  get failure(): string | undefined {
    return this.#failure === undefined ? undefined : toApiError(this.#failure).reason;
  }

  /**
   * Stops the provider and charges an incomplete answer. Resolves when the settlement is queued;
   * undefined: it is.
   */
  close(bill: Bill): Promise<void> | undefined {
    this.#cancelWait();
    if (!bill.isSettled) {
      this.#active.provider.abort();
      bill.chargeLater(this.#billedAt(this.#interruption()));
    }
    return bill.resizing;
  }

  /**
   * The client has hung up. Stops the provider at once, unless what it says next decides the
   * charge: its status before the first event, or the figures after the stop reason. No effect
   * after a settlement.
   */
  leave(): void {
    const isOver = this.#active.cancelReason !== undefined || this.#bill?.isSettled;
    if (this.#leftDuring !== undefined || isOver) return;
    this.#leftDuring = this.#phase;
    const abort = () => this.#active.provider.abort();
    if (this.#leftDuring === "before content" && this.provider === undefined)
      this.#cancelWait = this.#parts.clock.after(statusMs, abort);
    else if (this.#awaitsFigures) this.#cancelWait = this.#parts.clock.after(figuresMs, abort);
    else abort();
  }

  get #phase(): Phase {
    if (!this.#isAccepted) return "before acceptance";
    if (this.reported.phase !== "running") return "ending";
    return this.counted.began ? "content" : "before content";
  }

  get #awaitsFigures(): boolean {
    return this.#leftDuring === "ending" && !this.reported.hasTotal;
  }

  /** Reads on for a client that has left. Content is not billed any more. */
  #readFigures(events: readonly Event[]): void {
    if (this.#leftDuring === "content") return;
    for (const event of events) this.#report(event);
    this.#bill?.resize();
    if (!this.#awaitsFigures) this.#active.provider.abort();
  }

  /** The name of the end of an answer that did not reach its own. */
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
    if (!this.counted.began) return "providerFailed";
    return failure === "timeout" ? "providerLate" : "providerBroke";
  }

  #revocation(): EndingName {
    const phase = this.#phase;
    if (phase === "before acceptance") return "revokedBeforeAcceptance";
    return phase === "before content" ? "revokedBeforeContent" : "revoked";
  }

  #billedAt(ending: EndingName): Billed {
    return chargeAt(ending, this);
  }

  /**
   * Empties the lists of the request, whatever else holds on to it. From the first event of an
   * answer on, no other provider is called, and the answer may take minutes: the prompts of all
   * open answers would be most of the memory.
   */
  #forgetPrompt(): void {
    forget(this.#generation.request);
    forget(this.#prepared.request);
  }

  /** Ends the answer before the event `past`, with which it exceeds its grant. */
  #cut(shown: readonly Event[], past: Event): void {
    this.#isCut = true;
    this.#active.provider.abort();
    const { provider } = this.provider ?? {};
    const grantedOutput = this.#grant.output;
    const { requestId } = this.#generation;
    const { counted } = this;
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
    const { output = 0, thinking = 0 } = seenUsage(this.reported, counted) ?? {};
    const tokens = output + thinking;
    this.#parts.log.error(
      { code: "provider_past_grant", provider, requestId, grantedOutput, tokens },
      "the provider generated more output than its limit: its answer was cut",
    );
    if (index !== undefined)
      this.#end.push(newEvent({ case: "blockStop", value: create(BlockStopSchema, { index }) }));
    this.#end.push(
      newEvent({
        case: "messageDelta",
        value: create(MessageDeltaSchema, { stopReason: "max_tokens" }),
      }),
      newEvent({ case: "messageStop", value: create(MessageStopSchema) }),
    );
  }

  /** The end of the answer, with the charged tokens and their cost. */
  #chargedEnd(
    usage: Usage,
    { requestId, chargedMicrocredits: amountMicrocredits }: Receipt,
  ): Event[] {
    const end = this.#end;
    const $typeName = "gateway.inference.v1.Cost";
    const cost: Cost = {
      $typeName,
      requestId,
      chargedMicrocredits: amountMicrocredits,
      leftOut: [...this.leftOut],
    };
    const charged = chargedUsage(usage, this.#grant.output);
    const last = end.findLastIndex(({ kind }) => kind.case === "messageDelta");
    const event = end[last];
    if (event?.kind.case === "messageDelta") {
      const delta = event.kind.value;
      const shown = this.reported.shown(charged, delta.usage);
      const value: MessageDelta = { ...delta, usage: shown ?? delta.usage, cost };
      return end.with(last, newEvent({ case: "messageDelta", value }));
    }
    // An answer that started complete has no such event, and its cost needs one.
    const { stopReason } = this.reported;
    const shown = this.reported.shown(charged, undefined);
    const value = create(MessageDeltaSchema, {
      cost,
      ...(stopReason !== undefined && { stopReason }),
      ...(shown && { usage: shown }),
    });
    const stop = end.findLastIndex(({ kind }) => kind.case === "messageStop");
    return end.toSpliced(stop, 0, newEvent({ case: "messageDelta", value }));
  }
}

function forget(request: GenerateRequest): void {
  const { messages, system, tools } = request;
  messages.length = 0;
  tools.length = 0;
  if (system) system.content.length = 0;
  // Of OpenAI's formats they have the tools and a plain input, too.
  request.extensions = undefined;
}

declare module "../base/log.ts" {
  interface LogCodes {
    /** a provider generated more than it was allowed, and you pay for it; ask it why */
    provider_past_grant: true;
  }
}
