// The holds of this process: placed and settled through the two lanes, metered in between.

import { randomUUID } from "node:crypto";
import { create } from "@bufbuild/protobuf";
import { Basis, Outcome, type Receipt } from "../../gen/gateway/billing/v1/billing_pb.ts";
import { type Price, type Usage, UsageSchema } from "../../gen/gateway/common/v1/usage_pb.ts";
import { Refusal } from "../errors.ts";
import type { Log } from "../log.ts";
import type { Postgres } from "../postgres/postgres.ts";
import { type Admitted, type GrowAsk, type Hold, type HoldAsk, poolOf } from "./admission.ts";
import { admissionBatch, BatchConnection, isPassing, isTaken, settlementBatch } from "./batches.ts";
import { fitHold } from "./hold-size.ts";
import { Lane } from "./lane.ts";
import type { Ending, SettleAsk, Settled } from "./settlement.ts";
import { type LedgerStore, receiptOf } from "./store.ts";

/** Money for running requests, as the inference service uses it. */
export interface Holds {
  /**
   * Reserves the worst case of a request; returns when it is durable. Throws the refusals of `BillingService.PlaceHold`. Funds that
   * running requests hold are waited for, two seconds at most.
   */
  place(ask: Omit<HoldAsk, "kind" | "owner" | "nonce">, signal: AbortSignal): Promise<Hold>;
  /**
   * Fits a hold to the exact input that the provider reported. A larger hold is returned when it is durable, or refused with
   * `credits_exhausted`, `credits_held` or `monthly_cap_reached`; a smaller one is written in passing.
   */
  fit(hold: Hold, input: Usage): Promise<Hold>;
  /**
   * Watches a running request until it is settled: every two seconds `read` is asked what was used so far, and its answer is written
   * for the reaper. Undefined: nothing since the last time.
   */
  watch(requestId: string, read: () => Usage | undefined): void;
  /** Ends a request; returns when its charge is durable, however long the database is away. */
  settle(hold: Hold, ending: Ending): Promise<Receipt>;
}

const settings = {
  batchMax: 256,
  admitQueueMax: 10_000,
  // Every item here stands for an admitted request, so this bound is never the first to be met.
  settleQueueMax: 1_000_000,
  pauseMs: 100,
  admitPatienceMs: 10_000,
  /** How long a transaction that we lost sight of may still commit: several times what the server gives it. */
  abandonedForMs: 10_000,
  heldWaitMs: 2_000,
  heldRetryMs: 250,
  checkpointEveryMs: 2_000,
  /** A hold shrinks when that frees more than this, or more than 5 % of what was free at admission. */
  shrinkMicro: 10_000_000n,
};

const unused: Ending = { usage: create(UsageSchema), outcome: Outcome.GATEWAY_FAILED, basis: Basis.NONE, attempts: [] };

export class HoldKeeper implements Holds {
  readonly #store: LedgerStore;
  readonly #log: Log;
  readonly #nodeId: () => string;
  readonly #admissions: BatchConnection;
  readonly #settlements: BatchConnection;
  readonly #admitLane: Lane<HoldAsk | GrowAsk, Admitted>;
  readonly #settleLane: Lane<SettleAsk, Settled>;
  readonly #registered = new Set<string>();
  /**
   * By request id. Not a `Map`: the tables that a busy one outgrew hold on to each other and to what was in them, so that all answers of
   * the last seconds would be copied by every collection of garbage (8 ms instead of 1 at 4,000 requests/s).
   */
  readonly #meters: Record<string, () => Usage | undefined> = Object.create(null);
  /** Figures read from meters and not yet written. */
  readonly #unwritten = new Map<string, Usage>();
  /** Requests that wait for funds of a pool, called when one of its holds was settled. */
  readonly #waiting = new Map<string, Set<() => void>>();
  /** Request ids whose admission was given up without knowing how it ended. */
  readonly #abandoned = new Map<string, { nonce: string; untilMs: number }>();
  #checkpointing: Promise<void> | undefined;

  constructor(parts: {
    postgres: Postgres;
    store: LedgerStore;
    log: Log;
    nodeId: () => string;
    onLost: () => void;
    admitPatienceMs?: number;
  }) {
    this.#store = parts.store;
    this.#log = parts.log;
    this.#nodeId = parts.nodeId;
    this.#admissions = new BatchConnection(parts.postgres);
    this.#settlements = new BatchConnection(parts.postgres);
    this.#admitLane = new Lane((asks) => this.#admissions.run(admissionBatch(asks, parts.nodeId(), parts.onLost)), {
      batchMax: settings.batchMax,
      queueMax: settings.admitQueueMax,
      pauseMs: settings.pauseMs,
      patienceMs: parts.admitPatienceMs ?? settings.admitPatienceMs,
      isPassing: (error) => isPassing(error) || isTaken(error),
    });
    this.#settleLane = new Lane((asks) => this.#settlements.run(settlementBatch(asks)), {
      batchMax: settings.batchMax,
      queueMax: settings.settleQueueMax,
      pauseMs: settings.pauseMs,
      patienceMs: Number.POSITIVE_INFINITY,
      isPassing,
    });
  }

  async place(ask: Omit<HoldAsk, "kind" | "owner" | "nonce"> & { nonce?: string }, signal: AbortSignal): Promise<Hold> {
    await this.#register(ask.model, ask.price);
    const own = { owner: "process", nonce: randomUUID() } as const;
    const placing: HoldAsk = {
      ...ask,
      kind: "place",
      ...(ask.nonce === undefined ? own : { owner: "caller", nonce: ask.nonce }),
    };
    const giveUpAt = performance.now() + settings.heldWaitMs;
    for (;;) {
      const admitted = await this.#admitLane.submit(placing).catch((error: unknown) => {
        // A caller with a nonce of its own will ask again. Nobody else knows of ours.
        if (ask.nonce === undefined) this.#abandon(placing);
        throw error;
      });
      if (admitted.kind === "held") return admitted.hold;
      if (admitted.kind === "refused" || performance.now() >= giveUpAt || signal.aborted) throw admitted.refusal;
      await this.#fundsOrRetry(poolOf(ask.payer), signal);
    }
  }

  async fit(hold: Hold, input: Usage): Promise<Hold> {
    const amountMicro = fitHold(hold.price, input, hold.grantedOutput);
    if (amountMicro > hold.amountMicro) {
      const admitted = await this.#admitLane.submit({ kind: "grow", hold, amountMicro });
      if (admitted.kind === "held") return admitted.hold;
      throw admitted.refusal;
    }
    const freedMicro = hold.amountMicro - amountMicro;
    if (freedMicro > settings.shrinkMicro || freedMicro * 20n > hold.freeMicro) {
      this.#settleLane.submit({ kind: "shrink", hold, amountMicro }).then(
        () => this.#tellWaiting(poolOf(hold.payer)),
        (err: unknown) => this.#log.warn({ err, requestId: hold.requestId }, "a hold could not be made smaller"),
      );
    }
    return hold;
  }

  watch(requestId: string, read: () => Usage | undefined): void {
    this.#meters[requestId] = read;
  }

  async settle(hold: Hold, ending: Ending): Promise<Receipt> {
    delete this.#meters[hold.requestId];
    this.#unwritten.delete(hold.requestId);
    const settled = await this.#settleLane.submit({ kind: "settle", hold, ending });
    this.#tellWaiting(poolOf(hold.payer));
    if (settled.kind === "charged") return receiptOf(settled.charge);
    const earlier = await this.#findCharge(hold.requestId);
    if (earlier) return earlier;
    throw new Refusal("not_found", { message: "There is no such hold." });
  }

  // The charge may have been made by our own batch, whose commit we did not hear of: the database went away amid it.
  async #findCharge(requestId: string): Promise<Receipt | undefined> {
    for (;;) {
      try {
        return await this.#store.findCharge(requestId);
      } catch (error) {
        if (!(error instanceof Refusal && error.refusal === "billing_unavailable")) throw error;
        await new Promise((resolve) => setTimeout(resolve, settings.pauseMs));
      }
    }
  }

  /** Writes the metered figures of requests that moved since the last time. */
  checkpoint(): Promise<void> {
    this.#checkpointing ??= this.#checkpointOnce().finally(() => {
      this.#checkpointing = undefined;
    });
    return this.#checkpointing;
  }

  /** Waits until every queued settlement is durable, and takes no more. */
  async close(): Promise<void> {
    await this.#admitLane.drain();
    await this.#settleLane.drain();
    await this.#admissions.close();
    await this.#settlements.close();
  }

  async #checkpointOnce(): Promise<void> {
    await this.#releaseAbandoned();
    for (const [requestId, read] of Object.entries(this.#meters)) {
      const used = read();
      if (used) this.#unwritten.set(requestId, used);
    }
    if (this.#unwritten.size === 0) return;
    const writing = new Map(this.#unwritten);
    await this.#store.checkpoint(writing);
    for (const [requestId, used] of writing) if (this.#unwritten.get(requestId) === used) this.#unwritten.delete(requestId);
  }

  // A price must be durable before anything refers to it.
  async #register(model: string, price: Price): Promise<void> {
    if (this.#registered.has(price.priceVersion)) return;
    await this.#store.registerPrice(model, price);
    this.#registered.add(price.priceVersion);
  }

  #abandon({ requestId, nonce }: HoldAsk): void {
    this.#abandoned.set(requestId, { nonce, untilMs: performance.now() + settings.abandonedForMs });
  }

  // Nobody waits for these any more, but a commit whose answer we missed may have placed them, or may still do so.
  async #releaseAbandoned(): Promise<void> {
    for (const [requestId, { nonce, untilMs }] of this.#abandoned) {
      const isLast = performance.now() > untilMs;
      const stored = await this.#store.findHold(requestId);
      const isOurs = stored?.nonce === nonce;
      if (isOurs) await this.settle(stored.hold, unused);
      if (isOurs || isLast) this.#abandoned.delete(requestId);
    }
  }

  #fundsOrRetry(pool: string, signal: AbortSignal): Promise<void> {
    return new Promise((resolve) => {
      const waiting = this.#waiting.get(pool) ?? new Set();
      this.#waiting.set(pool, waiting);
      const go = () => {
        clearTimeout(timer);
        signal.removeEventListener("abort", go);
        waiting.delete(go);
        if (waiting.size === 0) this.#waiting.delete(pool);
        resolve();
      };
      const timer = setTimeout(go, settings.heldRetryMs);
      signal.addEventListener("abort", go, { once: true });
      waiting.add(go);
    });
  }

  #tellWaiting(pool: string): void {
    const waiting = this.#waiting.get(pool);
    if (waiting) for (const go of [...waiting]) go();
  }
}
