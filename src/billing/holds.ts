// The holds of this process: placed and settled through the two lanes, metered in between.

import { randomUUID } from "node:crypto";
import { create } from "@bufbuild/protobuf";
import { Basis, Outcome, type Receipt } from "../../gen/gateway/billing/v1/billing_pb.ts";
import { type Price, type Usage, UsageSchema } from "../../gen/gateway/common/v1/usage_pb.ts";
import { ApiError } from "../base/errors.ts";
import type { Log } from "../base/log.ts";
import type { Postgres } from "../postgres/postgres.ts";
import {
  type Admitted,
  type GrowRequest,
  type Hold,
  type HoldRequest,
  type PlacedHold,
  payerOf,
  poolOf,
} from "./admission.ts";
import {
  BatchConnection,
  classifyAdmissionError,
  classifySettlementError,
} from "./batch-connection.ts";
import { BatchQueue } from "./batch-queue.ts";
import { leastMicro, resizedHoldMicro } from "./hold-size.ts";
import { admissionBatch, settlementBatch } from "./ledger-batches.ts";
import type { Ending, Settled, SettleRequest } from "./settlement.ts";
import { receiptOf } from "./settlement.ts";
import type { LedgerStore } from "./store.ts";

/** Money for running requests, as the inference service uses it. */
export interface Holds {
  /**
   * Holds the worst case of a request; returns when it is durable. Throws the errors of
   * `BillingService.PlaceHold`. Funds that running requests hold are waited for, two seconds at
   * most.
   */
  place(ask: Omit<HoldRequest, "kind" | "owner" | "nonce">, signal: AbortSignal): Promise<Hold>;
  /**
   * Fits a hold to the exact input that the provider reported. A larger hold is returned when it is
   * durable, or refused with `credits_exhausted`, `credits_held` or `monthly_cap_reached`; a
   * smaller one is written in passing.
   */
  resize(hold: Hold, input: Usage): Promise<Hold>;
  /**
   * Watches a running request until it is settled: every two seconds `read` is asked what was used
   * so far, and its answer is written for the reaper. Undefined: nothing since the last time.
   */
  watch(requestId: string, read: () => Usage | undefined): void;
  /**
   * Ends a request; returns when its charge is durable, however long the database is away. Throws
   * `billing_unavailable` when the gateway stops meanwhile: the reaper of another one settles it.
   */
  settle(hold: PlacedHold, ending: Ending): Promise<Receipt>;
}

const settings = {
  batchMax: 256,
  admitQueueMax: 10_000,
  // Every item here stands for an admitted request, so this bound is never the first to be met.
  settleQueueMax: 1_000_000,
  pauseMs: 100,
  admitPatienceMs: 10_000,
  /**
   * How long a transaction that we lost sight of may still commit: several times what the server
   * gives it.
   */
  abandonedForMs: 10_000,
  /** Beyond so many the deadlines of the holds let go of them. */
  abandonedMax: 10_000,
  heldWaitMs: 2_000,
  heldRetryMs: 250,
  checkpointEveryMs: 2_000,
  /**
   * A hold shrinks when that frees more than this, or more than 5 % of what was free at admission.
   */
  shrinkMicro: 10_000_000n,
  closeMsMax: 10_000,
};

const unused: Ending = {
  usage: create(UsageSchema),
  outcome: Outcome.GATEWAY_FAILED,
  basis: Basis.NONE,
  attempts: [],
};

export class HoldKeeper implements Holds {
  readonly #store: LedgerStore;
  readonly #log: Log;
  readonly #nodeId: () => string;
  readonly #admissions: BatchConnection;
  readonly #settlements: BatchConnection;
  /** For what is blocked: nobody else waits for these. */
  readonly #blockedAdmissions: BatchConnection;
  readonly #blockedSettlements: BatchConnection;
  readonly #admitLane: BatchQueue<HoldRequest | GrowRequest, Admitted>;
  readonly #settleLane: BatchQueue<SettleRequest, Settled>;
  readonly #registered = new Set<string>();
  /**
   * By request id. Not a `Map`: the tables that a busy one outgrew hold on to each other and to
   * what was in them, so that all answers of the last seconds would be copied by every collection
   * of garbage (8 ms instead of 1 at 4,000 requests/s).
   */
  readonly #meters: Record<string, () => Usage | undefined> = Object.create(null);
  /** Figures read from meters and not yet written. */
  readonly #unwritten = new Map<string, Usage>();
  /**
   * Requests that wait for funds of a pool, the longest first; `go` is called when one of its holds
   * was settled.
   */
  readonly #waiting = new Map<string, Set<{ readonly neededMicro: bigint; go(): void }>>();
  /** Request ids whose admission was given up without knowing how it ended. */
  readonly #abandoned = new Map<string, { nonce: string; untilMs: number }>();
  #checkpointing: Promise<void> | undefined;
  #isClosed = false;

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
    this.#blockedAdmissions = new BatchConnection(parts.postgres);
    this.#blockedSettlements = new BatchConnection(parts.postgres);
    const admitOn =
      (connection: BatchConnection) => (asks: readonly (HoldRequest | GrowRequest)[]) =>
        connection.run(() => admissionBatch(asks, parts.nodeId(), parts.onLost));
    this.#admitLane = new BatchQueue(admitOn(this.#admissions), {
      batchMax: settings.batchMax,
      queueMax: settings.admitQueueMax,
      pauseMs: settings.pauseMs,
      maxWaitMs: parts.admitPatienceMs ?? settings.admitPatienceMs,
      classify: classifyAdmissionError,
      groupOf: (ask) => poolOf(payerOf(ask)),
      runBlocked: admitOn(this.#blockedAdmissions),
      onBlocked: (err) =>
        this.#log.warn(
          { err },
          "requests of some pools cannot be admitted for now and are tried apart",
        ),
      onGivenUp: (ask) => this.#abandon(ask),
    });
    const settleOn = (connection: BatchConnection) => (asks: readonly SettleRequest[]) =>
      connection.run(() => settlementBatch(asks));
    this.#settleLane = new BatchQueue(settleOn(this.#settlements), {
      batchMax: settings.batchMax,
      queueMax: settings.settleQueueMax,
      pauseMs: settings.pauseMs,
      maxWaitMs: Number.POSITIVE_INFINITY,
      classify: classifySettlementError,
      groupOf: ({ hold }) => poolOf(hold.payer),
      runBlocked: settleOn(this.#blockedSettlements),
      onBlocked: (err) =>
        this.#log.warn(
          { err },
          "requests of some pools cannot be settled for now and are tried apart",
        ),
    });
  }

  async place(
    ask: Omit<HoldRequest, "kind" | "owner" | "nonce"> & { nonce?: string },
    signal: AbortSignal,
  ): Promise<Hold> {
    await this.#register(ask.model, ask.price);
    const own = { owner: "process", nonce: randomUUID() } as const;
    const placing: HoldRequest = {
      ...ask,
      kind: "place",
      ...(ask.nonce === undefined ? own : { owner: "caller", nonce: ask.nonce }),
    };
    const giveUpAt = performance.now() + settings.heldWaitMs;
    for (;;) {
      const admitted = await this.#admitLane.submit(placing);
      if (admitted.kind === "held") return admitted.hold;
      if (admitted.kind === "refused" || performance.now() >= giveUpAt || signal.aborted)
        throw admitted.apiError;
      await this.#fundsOrRetry(ask, signal);
    }
  }

  async resize(hold: Hold, input: Usage): Promise<Hold> {
    const amountMicro = resizedHoldMicro(hold.price, input, hold.grantedOutput);
    if (amountMicro > hold.amountMicro) {
      const admitted = await this.#admitLane.submit({ kind: "grow", hold, amountMicro });
      if (admitted.kind === "held") return admitted.hold;
      throw admitted.apiError;
    }
    const freedMicro = hold.amountMicro - amountMicro;
    if (freedMicro > settings.shrinkMicro || freedMicro * 20n > hold.freeMicro) {
      this.#settleLane.submit({ kind: "shrink", hold, amountMicro }).then(
        () => this.#tellWaiting(poolOf(hold.payer), freedMicro),
        (err: unknown) =>
          this.#log.warn({ err, requestId: hold.requestId }, "a hold could not be made smaller"),
      );
    }
    return hold;
  }

  watch(requestId: string, read: () => Usage | undefined): void {
    this.#meters[requestId] = read;
  }

  async settle(hold: PlacedHold, ending: Ending): Promise<Receipt> {
    delete this.#meters[hold.requestId];
    this.#unwritten.delete(hold.requestId);
    const settled = await this.#settleLane.submit({ kind: "settle", hold, ending });
    const chargedMicro = settled.kind === "charged" ? settled.charge.amountMicro : 0n;
    this.#tellWaiting(poolOf(hold.payer), hold.amountMicro - chargedMicro);
    if (settled.kind === "charged") return receiptOf(settled.charge);
    const earlier = await this.#findCharge(hold.requestId);
    if (earlier) return earlier;
    throw new ApiError("not_found", { message: "There is no such hold." });
  }

  // The charge may have been made by our own batch, whose commit we did not hear of: the database
  // went away during it.
  async #findCharge(requestId: string): Promise<Receipt | undefined> {
    for (;;) {
      try {
        return await this.#store.findCharge(requestId);
      } catch (error) {
        if (
          this.#isClosed ||
          !(error instanceof ApiError && error.reason === "billing_unavailable")
        )
          throw error;
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

  /**
   * Gives back what was held for requests that nobody waits for any more: a commit whose answer we
   * missed may have placed them, or may still do so.
   */
  async releaseAbandoned(): Promise<void> {
    if (this.#abandoned.size === 0) return;
    const asked = new Map(this.#abandoned);
    const askedAtMs = performance.now();
    const stored = await this.#store.findHolds([...asked.keys()]);
    const ours = stored.filter(({ hold, nonce }) => asked.get(hold.requestId)?.nonce === nonce);
    const settling = Promise.all(ours.map(({ hold }) => this.settle(hold, unused)));
    for (const { hold } of ours) this.#abandoned.delete(hold.requestId);
    for (const [requestId, { untilMs }] of asked)
      if (askedAtMs > untilMs) this.#abandoned.delete(requestId);
    await settling;
  }

  /**
   * Waits until every queued settlement is durable, `withinMs` at most, and takes no more. What is
   * left is settled by a reaper.
   */
  async close(withinMs = settings.closeMsMax): Promise<void> {
    const until = performance.now() + withinMs;
    await this.#admitLane.drain(withinMs);
    const left = await this.#settleLane.drain(Math.max(0, until - performance.now()));
    if (left > 0)
      this.#log.error(
        { requests: left },
        "the ledger is away: these are left for another process to settle",
      );
    this.#isClosed = true;
    const connections = [
      this.#admissions,
      this.#settlements,
      this.#blockedAdmissions,
      this.#blockedSettlements,
    ];
    await Promise.all(connections.map((connection) => connection.close()));
  }

  async #checkpointOnce(): Promise<void> {
    for (const [requestId, read] of Object.entries(this.#meters)) {
      const used = read();
      if (used) this.#unwritten.set(requestId, used);
    }
    if (this.#unwritten.size === 0) return;
    const writing = new Map(this.#unwritten);
    await this.#store.checkpoint(writing);
    for (const [requestId, used] of writing)
      if (this.#unwritten.get(requestId) === used) this.#unwritten.delete(requestId);
  }

  // A price must be durable before anything refers to it.
  async #register(model: string, price: Price): Promise<void> {
    if (this.#registered.has(price.priceVersion)) return;
    await this.#store.registerPrice(model, price);
    this.#registered.add(price.priceVersion);
  }

  // A caller with a nonce of its own will ask again. Nobody else knows of ours.
  #abandon(ask: HoldRequest | GrowRequest): void {
    if (
      ask.kind !== "place" ||
      ask.owner === "caller" ||
      this.#abandoned.size >= settings.abandonedMax
    )
      return;
    this.#abandoned.set(ask.requestId, {
      nonce: ask.nonce,
      untilMs: performance.now() + settings.abandonedForMs,
    });
  }

  #fundsOrRetry(
    { payer, price, bounds }: Pick<HoldRequest, "payer" | "price" | "bounds">,
    signal: AbortSignal,
  ): Promise<void> {
    const pool = poolOf(payer);
    return new Promise((resolve) => {
      const waiting = this.#waiting.get(pool) ?? new Set();
      this.#waiting.set(pool, waiting);
      const go = () => {
        clearTimeout(timer);
        signal.removeEventListener("abort", go);
        waiting.delete(one);
        if (waiting.size === 0) this.#waiting.delete(pool);
        resolve();
      };
      const one = { neededMicro: leastMicro(price, bounds), go };
      const timer = setTimeout(go, settings.heldRetryMs);
      signal.addEventListener("abort", go, { once: true });
      waiting.add(one);
    });
  }

  // No more than the freed funds may serve: each goes through the lane that all admissions share.
  #tellWaiting(pool: string, freedMicro: bigint): void {
    let leftMicro = freedMicro;
    for (const { neededMicro, go } of this.#waiting.get(pool) ?? []) {
      go();
      leftMicro -= neededMicro;
      if (leftMicro <= 0n) return;
    }
  }
}
