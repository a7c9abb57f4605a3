// The holds of this process. It places and settles them through two batch queues, and stores their
// metered usage in between.

import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { create } from "@bufbuild/protobuf";
import { Basis, Outcome, type Receipt } from "../../gen/gateway/billing/v1/receipt_pb.ts";
import { type Price, type Usage, UsageSchema } from "../../gen/gateway/common/v1/usage_pb.ts";
import * as sql from "../../gen/sql/billing.ts";
import { BoundedMap } from "../base/bounded-map.ts";
import { type Clock, pause, systemClock, withTimeout } from "../base/clock.ts";
import { ApiError } from "../base/errors.ts";
import { newRequestId } from "../base/ids.ts";
import type { Log } from "../base/log.ts";
import { WaitGroup } from "../base/wait-group.ts";
import { type Connection, isUnreachable, type Postgres } from "../postgres/postgres.ts";
import {
  type AdmissionRequest,
  type Admitted,
  budgetOf,
  type Hold,
  type HoldRequest,
  keyOf,
  type Payer,
  type PlacedHold,
  payerOf,
  poolOf,
  type RequestKey,
  requestKeyOf,
} from "./admission.ts";
import {
  BatchConnection,
  BatchQueue,
  classifyAdmissionError,
  classifySettlementError,
} from "./batch-queue.ts";
import {
  least,
  maxHoldMicro,
  minHoldMicro,
  resizedHoldMicro,
  type UsageBounds,
} from "./hold-size.ts";
import { KnownRows } from "./known-rows.ts";
import { admissionBatch, settlementBatch } from "./ledger-batches.ts";
import type { LedgerMetrics } from "./ledger-metrics.ts";
import { stepsOf } from "./price.ts";
import { priceRow } from "./rows.ts";
import { type Ending, receiptOf, type Settled, type SettleRequest } from "./settlement.ts";
import type { LedgerStore, Metered } from "./store.ts";

/** A request for a new hold. */
export type NewHold = Omit<HoldRequest, "kind" | "owner" | "nonce" | "mayRefine"> & {
  /**
   * Called when the free credits do not cover `bounds`, or only a reduced grant: returns closer
   * bounds, or undefined if closer bounds cannot help. Not called again after it returned bounds.
   */
  readonly refine?: (freeMicro: bigint) => Promise<UsageBounds | undefined>;
};

/** A hold that is being placed, and the figures that it was taken off. */
export type ExpectedHold = { readonly micro: bigint; readonly of: readonly FreeCredits[] };

/** Credits that the last admission left free, and the holds that were expected of them since. */
type FreeCredits = {
  micro: bigint;
  atMs: number;
  expectedMicro: bigint;
  /** Of a key: under which name that of its manager is known. Undefined: it has no limit. */
  manager: string | undefined;
};

/** The holds of running requests, as the inference service uses them. */
export interface Holds {
  /**
   * Admits a request and places its hold; returns when the hold is durable. While other
   * running requests hold the credits, waits up to two seconds for them. Throws the errors of
   * `BillingService.PlaceHold`.
   */
  place(request: NewHold, signal: AbortSignal): Promise<Hold>;
  /**
   * Expects a hold for all of `maxOutput`, where it can hardly fail: the last admission of this
   * process from the pool, and of a key whose budgets have limits, is at most a second old, and
   * this process's part of what it left free is 17 times that hold, without the holds that are
   * expected already. Undefined: it may fail.
   */
  expectFull(request: NewHold, isLimited: boolean): ExpectedHold | undefined;
  /**
   * As `place`, for all of `maxOutput` and without waiting for held credits. Undefined: the request
   * is not admitted so; `place` says why. `expected` is over then.
   */
  placeFull(request: Omit<NewHold, "refine">, expected: ExpectedHold): Promise<Hold | undefined>;
  /**
   * Resizes a hold to the exact input that the provider reported. A larger hold grows as far as
   * the pool has free credits, and is returned when it is durable. A smaller hold is written in the
   * background.
   */
  resize(hold: Hold, input: Usage): Promise<Hold>;
  /** True if `resize` would leave the hold as it is. */
  fits(hold: Hold, input: Usage): boolean;
  /**
   * Checkpoints a running request until the returned function is called: calls `read` every two
   * seconds and stores the metered usage for the reaper. `read` returns undefined when the usage
   * has not changed.
   */
  watch(request: RequestKey, read: () => Usage | undefined): () => void;
  /**
   * Charges a finished request; returns when the charge is durable, however long the database is
   * unavailable. Throws `billing_unavailable` when the gateway stops before that: another process
   * then settles the request.
   */
  settle(hold: PlacedHold, ending: Ending): Promise<Receipt>;
  /**
   * Replaces the ending of a queued settlement until it is answered. Has no effect on a batch that
   * was already sent.
   */
  amend(request: RequestKey, ending: Ending): void;
}

const settings = {
  batchMax: 256,
  admitQueueMax: 10_000,
  // Each item stands for an admitted request, so other bounds are reached before this one.
  settleQueueMax: 1_000_000,
  /** Prices that a new connection registers again in one round trip. */
  registeredAtOnce: 500,
  pauseMs: 100,
  admitMaxWaitMs: 10_000,
  /**
   * How long an unconfirmed transaction may still commit: several times the server's limit for it.
   */
  unconfirmedMs: 10_000,
  /** Holds of further unconfirmed requests stay until their deadlines. */
  unconfirmedMax: 10_000,
  freeKnownMs: 1_000,
  /** Pools, and keys with limits, whose free credits are remembered. */
  freeKnownMax: 20_000,
  heldWaitMs: 2_000,
  heldRetryMs: 250,
  /**
   * A hold shrinks when that frees more than this, or more than 5 % of the free credits at
   * admission.
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

/** Reads the usage of a running request. `index`: its place in the list of all. */
type Meter = { readonly request: RequestKey; read(): Usage | undefined; index: number };

type Parts = {
  postgres: Postgres;
  store: LedgerStore;
  log: Log;
  nodeId: () => string;
  /** The processes that share the credits of every pool. Default: this one. */
  liveNodes?: () => number;
  onLost: () => void;
  /** Called with the account of each settled hold, and the time of its admission. */
  onSettled?: (accountId: string, admittedAt: Date) => void;
  /** Called with each charge, once it is durable. */
  onCharge?: (charge: Receipt) => void;
  /** How long an admission waits for the database. */
  maxWaitMs?: number;
  clock?: Clock | undefined;
  /** Absent: nothing is counted. */
  metrics?: LedgerMetrics | undefined;
};

/** The two queues, and their connections. */
type Queues = {
  readonly admission: BatchQueue<AdmissionRequest, Admitted>;
  readonly settlement: BatchQueue<SettleRequest, Settled>;
  readonly connections: readonly BatchConnection[];
};

export class HoldKeeper implements Holds {
  readonly #postgres: Postgres;
  readonly #store: LedgerStore;
  readonly #log: Log;
  readonly #queues: Queues;
  /** By price version. */
  readonly #registeredPrices = new Map<string, { readonly model: string; readonly price: Price }>();
  /**
   * Not a `Map` or `Set`: the tables that a busy one has outgrown reference each other and their
   * entries, so every garbage collection copies all answers of the last seconds (8 ms instead of
   * 1 ms at 4,000 requests/s).
   */
  readonly #meters: Meter[] = [];
  /** Usage that was read from meters and is not stored yet, by request. */
  readonly #unwritten = new Map<string, Metered>();
  /** Requests that wait for credits of a pool, oldest first, by pool. */
  readonly #waiting = new Map<string, Set<{ readonly neededMicro: bigint; wake(): void }>>();
  /** Requests that failed although their admission may have been committed, by request. */
  readonly #unconfirmed = new Map<string, RequestKey & { nonce: string; untilMs: number }>();
  /** Credits that the last admission left free, by pool, key with limits and manager with some. */
  readonly #free = new BoundedMap<string, FreeCredits>(settings.freeKnownMax);
  /** Rows of the ledger, for requests that are alone in their batches. */
  readonly #known = new KnownRows();
  /** Holds that are being shrunk, by request. */
  readonly #shrinking = new Map<string, Promise<void>>();
  /** Endings that replace those of queued settlements, by request. */
  readonly #amended = new Map<string, Ending>();
  /** Settlements that are not queued yet: the price that they name is not durable. */
  readonly #pricing = new WaitGroup();
  readonly #maxWaitMs: number;
  readonly #clock: Clock;
  readonly #liveNodes: () => number;
  readonly #onSettled: ((accountId: string, admittedAt: Date) => void) | undefined;
  readonly #onCharge: ((charge: Receipt) => void) | undefined;
  readonly #metrics: LedgerMetrics | undefined;
  #checkpointing: Promise<void> | undefined;
  #isClosed = false;

  constructor(parts: Parts) {
    this.#postgres = parts.postgres;
    this.#store = parts.store;
    this.#log = parts.log;
    this.#onSettled = parts.onSettled;
    this.#onCharge = parts.onCharge;
    this.#metrics = parts.metrics;
    this.#clock = parts.clock ?? systemClock;
    this.#liveNodes = parts.liveNodes ?? (() => 1);
    this.#maxWaitMs = parts.maxWaitMs ?? settings.admitMaxWaitMs;
    this.#queues = this.#open(parts);
  }

  #open({ postgres, nodeId, onLost }: Pick<Parts, "postgres" | "nodeId" | "onLost">): Queues {
    const prepare = (connection: Connection) => this.#registerPricesAgain(connection);
    const clock = this.#clock;
    const admissions = new BatchConnection(postgres, { prepare, clock });
    const settlements = new BatchConnection(postgres, { prepare, clock });
    // For blocked groups only.
    const blockedAdmissions = new BatchConnection(postgres, { prepare, clock });
    const blockedSettlements = new BatchConnection(postgres, { prepare, clock });
    const admitOn =
      (connection: BatchConnection) =>
      async (requests: readonly AdmissionRequest[], isRepeat: boolean) => {
        const [alone, second] = requests;
        if (alone && second === undefined && !isRepeat) {
          const admission = this.#known.admission(alone, nodeId());
          const admitted = admission && (await connection.run(() => admission));
          if (admitted) return [admitted];
        }
        const asked = isRepeat ? requests.map(withUsedId) : requests;
        return connection.run(() => admissionBatch(asked, nodeId(), onLost, this.#known));
      };
    const settleOn = (connection: BatchConnection) => (requests: readonly SettleRequest[]) =>
      connection.run(() => settlementBatch(requests.map(this.#withAmendment)));
    return {
      connections: [admissions, settlements, blockedAdmissions, blockedSettlements],
      admission: new BatchQueue(admitOn(admissions), {
        batchMax: settings.batchMax,
        queueMax: settings.admitQueueMax,
        pauseMs: settings.pauseMs,
        maxWaitMs: this.#maxWaitMs,
        clock,
        classify: classifyAdmissionError,
        groupOf: (request) => poolOf(payerOf(request)),
        runBlocked: admitOn(blockedAdmissions),
        onBlocked: (err) =>
          this.#log.warn(
            { code: "ledger_blocked", err },
            "admission: some pools are blocked; retrying them separately",
          ),
        onUnconfirmed: (request) => this.#rememberUnconfirmed(request),
        ...this.#reportStalls("admission"),
        metrics: this.#metrics?.queue("admit"),
      }),
      settlement: new BatchQueue(settleOn(settlements), {
        batchMax: settings.batchMax,
        queueMax: settings.settleQueueMax,
        pauseMs: settings.pauseMs,
        maxWaitMs: Number.POSITIVE_INFINITY,
        clock,
        classify: classifySettlementError,
        groupOf: ({ hold }) => poolOf(hold.payer),
        runBlocked: settleOn(blockedSettlements),
        onBlocked: (err) =>
          this.#log.warn(
            { code: "ledger_blocked", err },
            "settlement: some pools are blocked; retrying them separately",
          ),
        ...this.#reportStalls("settlement"),
        metrics: this.#metrics?.queue("settle"),
      }),
    };
  }

  /** Says why nothing is written although the database answers, such as on a full disk. */
  #reportStalls(queue: "admission" | "settlement") {
    let isReported = false;
    return {
      onStalled: (err: unknown) => {
        // The heartbeats of this process say that it does not answer, and `onBlocked` who waits.
        isReported = !isUnreachable(err);
        if (isReported)
          this.#log.error(
            { code: "ledger_stalled", err },
            `${queue}: the database takes no writes`,
          );
      },
      onResumed: () => {
        if (isReported) this.#log.info(`${queue}: the database takes writes again`);
      },
    };
  }

  #admit(request: AdmissionRequest): Promise<Admitted> {
    return this.#queues.admission.submit(request);
  }

  #settle(request: SettleRequest): Promise<Settled> {
    return this.#queues.settlement.submit(request);
  }

  async place(
    { refine, ...request }: NewHold & { readonly nonce?: string },
    signal: AbortSignal,
  ): Promise<Hold> {
    if (!this.#hasPrice(request.price)) await this.#registerPrice(request.model, request.price);
    let placing: HoldRequest = {
      ...request,
      kind: "place",
      mayRefine: refine !== undefined,
      owner: request.nonce === undefined ? "process" : "caller",
      nonce: request.nonce ?? randomUUID(),
    };
    const untilMs = this.#clock.now() + settings.heldWaitMs;
    for (;;) {
      const admitted = await this.#admit(placing);
      if (admitted.kind === "held") return this.#rememberFree(admitted.hold);
      const { mayRefine } = placing;
      assert(mayRefine || admitted.kind !== "reduced", "only a request that may be refined is");
      const { freeMicro } = admitted;
      const bounds = mayRefine && freeMicro !== undefined && (await refine?.(freeMicro));
      if (admitted.kind === "reduced" && signal.aborted) throw new ApiError("cancelled");
      if (admitted.kind === "reduced" || (bounds && !signal.aborted)) {
        placing = { ...placing, bounds: bounds || placing.bounds, mayRefine: false };
        continue;
      }
      if (admitted.kind === "rejected" || this.#clock.now() >= untilMs || signal.aborted)
        throw await this.#withOtherPool(admitted.error, request.payer);
      await this.#waitForCredits(placing, signal);
    }
  }

  /** The error, which says so where the credits that would be needed are in the other pool. */
  async #withOtherPool(error: ApiError, { accountId, family }: Payer): Promise<ApiError> {
    if (error.reason !== "credits_exhausted") return error;
    const pools = await this.#postgres.run(sql.readPools, { accountId }).catch(() => []);
    const other = pools.find((pool) => pool.family !== family && pool.posted > pool.held);
    if (other === undefined) return error;
    const hint = `This is a ${family} key; credits of ${other.family} do not pay for it.`;
    return new ApiError(error.reason, { ...error.facts, message: `${error.message} ${hint}` });
  }

  expectFull({ payer, price, bounds }: NewHold, isLimited: boolean): ExpectedHold | undefined {
    const micro = maxHoldMicro(price, bounds);
    const sinceMs = this.#clock.now() - settings.freeKnownMs;
    const nodes = BigInt(Math.max(1, this.#liveNodes()));
    // The keys of a manager share what he has.
    const manager = isLimited ? this.#free.get(payer.keyId)?.manager : undefined;
    const ofKey = isLimited ? [payer.keyId] : [];
    const names = [poolOf(payer), ...ofKey, ...(manager === undefined ? [] : [manager])];
    const of = names.flatMap((name) => {
      const free = this.#free.get(name);
      const isKnown = free !== undefined && free.atMs >= sinceMs;
      // It begins only if 16 times its hold is left after it.
      return isKnown && free.micro / nodes - free.expectedMicro >= micro * 17n ? [free] : [];
    });
    if (of.length < names.length) return undefined;
    for (const free of of) free.expectedMicro += micro;
    return { micro, of };
  }

  async placeFull(
    request: Omit<NewHold, "refine">,
    { micro, of }: ExpectedHold,
  ): Promise<Hold | undefined> {
    try {
      if (!this.#hasPrice(request.price)) await this.#registerPrice(request.model, request.price);
      const admitted = await this.#admit({
        ...request,
        kind: "place",
        owner: "process",
        nonce: randomUUID(),
        bounds: { ...request.bounds, minOutput: request.bounds.maxOutput },
      });
      return admitted.kind === "held" ? this.#rememberFree(admitted.hold) : undefined;
    } finally {
      for (const free of of) free.expectedMicro -= micro;
    }
  }

  #rememberFree(hold: Hold): Hold {
    const { payer, freeMicro, left } = hold;
    this.#setFree(poolOf(payer), least(freeMicro, left.ofPool));
    const { ofManager } = left;
    const manager = ofManager === undefined ? undefined : budgetOf(payer, hold.manager ?? "");
    if (ofManager !== undefined && manager !== undefined) this.#setFree(manager, ofManager);
    if (left.ofKey !== undefined) this.#setFree(payer.keyId, left.ofKey, manager);
    return hold;
  }

  #setFree(name: string, micro: bigint, manager?: string): void {
    const atMs = this.#clock.now();
    const known = this.#free.get(name);
    if (known) Object.assign(known, { micro, atMs, manager });
    else this.#free.set(name, { micro, atMs, expectedMicro: 0n, manager });
  }

  async resize(hold: Hold, input: Usage): Promise<Hold> {
    if (this.fits(hold, input)) return hold;
    const amountMicro = resizedHoldMicro(hold.price, input, hold.grantedOutput);
    if (amountMicro > hold.amountMicro) {
      await this.#whenShrunk(hold);
      const admitted = await this.#admit({ kind: "grow", hold, amountMicro });
      if (admitted.kind === "held") return admitted.hold;
      assert(admitted.kind === "rejected", "a hold grows as far as it can");
      throw admitted.error;
    }
    this.#shrink(hold, amountMicro);
    return { ...hold, amountMicro };
  }

  fits({ price, grantedOutput, amountMicro, freeMicro }: Hold, input: Usage): boolean {
    const freedMicro = amountMicro - resizedHoldMicro(price, input, grantedOutput);
    return freedMicro >= 0n && freedMicro <= settings.shrinkMicro && freedMicro * 20n <= freeMicro;
  }

  #shrink(hold: Hold, amountMicro: bigint): void {
    const { requestId, payer } = hold;
    const requestKey = keyOf(requestKeyOf(hold));
    const shrinking = this.#settle({ kind: "shrink", hold, amountMicro })
      .then(
        () => this.#wakeWaiting(poolOf(payer), hold.amountMicro - amountMicro),
        (err: unknown) =>
          this.#log.warn({ code: "hold_not_shrunk", err, requestId }, "cannot shrink a hold"),
      )
      .finally(() => {
        if (this.#shrinking.get(requestKey) === shrinking) this.#shrinking.delete(requestKey);
      });
    this.#shrinking.set(requestKey, shrinking);
  }

  // The two queues do not wait for each other, and a late shrink would undo the growth of a hold.
  async #whenShrunk(hold: Hold): Promise<void> {
    const shrinking = this.#shrinking.get(keyOf(requestKeyOf(hold)));
    if (shrinking === undefined) return;
    await withTimeout(shrinking, this.#maxWaitMs, () => {
      throw new ApiError("billing_unavailable", { retryAfterMs: 1000 });
    });
  }

  /** How long no request could be admitted although some tried; 0 while all is well. */
  get admissionStalledMs(): number {
    return this.#queues.admission.stalledMs;
  }

  /** How long no request could be settled although some ended; 0 while all is well. */
  get settlementStalledMs(): number {
    return this.#queues.settlement.stalledMs;
  }

  /** Requests that wait for their admission, and for their settlement. */
  get waiting(): { readonly admit: number; readonly settle: number } {
    const { admission, settlement } = this.#queues;
    return { admit: admission.size, settle: settlement.size + this.#pricing.count };
  }

  /**
   * After a failure of the database that no request follows up, finds out whether it is over:
   * writes what a request would, and takes it back. Throws while it is not.
   */
  async tryWrites(): Promise<void> {
    const { admission, settlement } = this.#queues;
    const failed = [admission, settlement].filter(({ needsTrial }) => needsTrial);
    if (failed.length === 0) return;
    const connection = new BatchConnection(this.#postgres, { clock: this.#clock });
    try {
      await connection.rehearse([sql.tryWrites.with({ requestId: newRequestId() })]);
    } finally {
      await connection.close();
    }
    for (const queue of failed) queue.noteSuccess();
  }

  watch(request: RequestKey, read: () => Usage | undefined): () => void {
    const meter = { request, read, index: this.#meters.length };
    this.#meters.push(meter);
    return () => {
      // The last one takes its place.
      const last = this.#meters.pop();
      if (last === undefined || last === meter) return;
      this.#meters[meter.index] = last;
      last.index = meter.index;
    };
  }

  async settle(hold: PlacedHold, ending: Ending): Promise<Receipt> {
    if (this.#unwritten.size > 0) this.#unwritten.delete(keyOf(requestKeyOf(hold)));
    try {
      const settled = await this.#settlePriced({ kind: "settle", hold, ending });
      this.#onSettled?.(hold.payer.accountId, hold.admittedAt);
      if (settled.kind === "charged") {
        this.#known.charge(settled.charge);
        this.#metrics?.count(settled.charge);
      }
      const chargedMicro = settled.kind === "charged" ? settled.charge.amountMicro : 0n;
      this.#wakeWaiting(poolOf(hold.payer), hold.amountMicro - chargedMicro);
      const charge =
        settled.kind === "charged"
          ? receiptOf(settled.charge)
          : await this.#findCharge(requestKeyOf(hold));
      if (!charge) throw new ApiError("not_found", { message: "No such hold." });
      this.#onCharge?.(charge);
      return charge;
    } finally {
      if (this.#amended.size > 0) this.#amended.delete(keyOf(requestKeyOf(hold)));
    }
  }

  /** Settles a hold, once the price that the provider applied is durable. */
  async #settlePriced(request: Extract<SettleRequest, { kind: "settle" }>): Promise<Settled> {
    const { hold, ending } = request;
    const { appliedPrice } = ending;
    if (!appliedPrice || this.#hasPrice(appliedPrice)) return this.#settle(request);
    this.#pricing.add();
    let settling: Promise<Settled>;
    try {
      // However long the database is unavailable, as the charge itself.
      await this.#registerPrice(hold.model, appliedPrice, Number.POSITIVE_INFINITY);
      settling = this.#settle(request);
    } finally {
      // Not before it is queued, so that a stop meets it in one of the two places.
      this.#pricing.done();
    }
    return settling;
  }

  amend(request: RequestKey, ending: Ending): void {
    this.#amended.set(keyOf(request), ending);
  }

  // Our own batch may have made the charge: its commit got no answer because the database became
  // unavailable. So this waits until the database is back.
  async #findCharge(request: RequestKey): Promise<Receipt | undefined> {
    for (;;) {
      try {
        return await this.#store.findCharge(request);
      } catch (error) {
        if (this.#isClosed || !isUnavailable(error)) throw error;
        await pause(this.#clock, settings.pauseMs);
      }
    }
  }

  /** Stores the metered usage of the requests whose usage has changed. */
  checkpoint(): Promise<void> {
    this.#checkpointing ??= this.#checkpointOnce().finally(() => {
      this.#checkpointing = undefined;
    });
    return this.#checkpointing;
  }

  /**
   * Releases the holds of requests that failed unconfirmed: a transaction whose result we missed
   * may have placed them, or may still do so.
   */
  async releaseUnconfirmed(): Promise<void> {
    if (this.#unconfirmed.size === 0) return;
    const unconfirmed = new Map(this.#unconfirmed);
    const readAtMs = this.#clock.now();
    const stored = await this.#store.findHolds([...unconfirmed.values()]);
    const ours = stored.filter(
      ({ hold, nonce }) => unconfirmed.get(keyOf(requestKeyOf(hold)))?.nonce === nonce,
    );
    const settling = Promise.all(ours.map(({ hold }) => this.settle(hold, unused)));
    for (const { hold } of ours) this.#unconfirmed.delete(keyOf(requestKeyOf(hold)));
    for (const [requestKey, { untilMs }] of unconfirmed)
      if (readAtMs > untilMs) this.#unconfirmed.delete(requestKey);
    await settling;
  }

  /**
   * Stops both queues and waits up to `withinMs` until every queued settlement is durable. Other
   * processes settle the rest: returns how many.
   */
  async close(withinMs = settings.closeMsMax): Promise<number> {
    const until = this.#clock.now() + withinMs;
    const { admission, settlement, connections } = this.#queues;
    const leftMs = () => Math.max(0, until - this.#clock.now());
    await admission.drain(withinMs);
    await withTimeout(this.#pricing.wait(), leftMs(), () => undefined, this.#clock);
    const left = (await settlement.drain(leftMs())) + this.#pricing.count;
    if (left > 0)
      this.#log.error(
        { code: "settlements_left", requests: left },
        "stopped before the ledger was reachable; other processes will settle these requests",
      );
    this.#isClosed = true;
    await Promise.all(connections.map((connection) => connection.close()));
    return left;
  }

  async #checkpointOnce(): Promise<void> {
    for (const { request, read } of this.#meters) {
      const usage = read();
      if (usage) this.#unwritten.set(keyOf(request), { ...request, usage });
    }
    if (this.#unwritten.size === 0) return;
    const writing = new Map(this.#unwritten);
    await this.#store.checkpoint([...writing.values()]);
    for (const [requestKey, metered] of writing)
      if (this.#unwritten.get(requestKey) === metered) this.#unwritten.delete(requestKey);
  }

  readonly #withAmendment = (request: SettleRequest): SettleRequest => {
    if (request.kind !== "settle" || this.#amended.size === 0) return request;
    const ending = this.#amended.get(keyOf(requestKeyOf(request.hold)));
    return ending === undefined ? request : { ...request, ending };
  };

  #hasPrice({ priceVersion }: Price): boolean {
    return this.#registeredPrices.has(priceVersion);
  }

  // A price must be durable before a hold references it.
  async #registerPrice(model: string, price: Price, maxWaitMs = this.#maxWaitMs): Promise<void> {
    const untilMs = this.#clock.now() + maxWaitMs;
    while (!this.#hasPrice(price)) {
      try {
        await this.#store.registerPrice(model, price);
        this.#registeredPrices.set(price.priceVersion, { model, price });
      } catch (error) {
        if (!isUnavailable(error) || this.#isClosed || this.#clock.now() >= untilMs) throw error;
        await pause(this.#clock, settings.pauseMs);
      }
    }
  }

  // A restored backup, or a failover without synchronous replication, may have lost prices. Without
  // its price a hold is never found, and never released.
  async #registerPricesAgain(connection: Connection): Promise<void> {
    const all = [...this.#registeredPrices.values()].flatMap(({ model, price }) =>
      stepsOf(price).map((step) => sql.registerPrice.with({ ...priceRow(step), model })),
    );
    // With price lists there are thousands: not a round trip for each.
    for (let first = 0; first < all.length; first += settings.registeredAtOnce)
      await connection.send(all.slice(first, first + settings.registeredAtOnce));
  }

  // A calling service repeats its request with its own nonce. Only this process knows the nonces
  // that it made.
  #rememberUnconfirmed(request: AdmissionRequest): void {
    if (request.kind !== "place" || request.owner === "caller") return;
    if (this.#unconfirmed.size >= settings.unconfirmedMax) return;
    const requestKey = requestKeyOf(request);
    this.#unconfirmed.set(keyOf(requestKey), {
      ...requestKey,
      nonce: request.nonce,
      untilMs: this.#clock.now() + settings.unconfirmedMs,
    });
  }

  // Returns when a hold of the pool was released, when it is time to retry, or at the abort.
  #waitForCredits(
    { payer, price, bounds }: Pick<HoldRequest, "payer" | "price" | "bounds">,
    signal: AbortSignal,
  ): Promise<void> {
    const pool = poolOf(payer);
    return new Promise((resolve) => {
      const waiting = this.#waiting.get(pool) ?? new Set();
      this.#waiting.set(pool, waiting);
      const wake = () => {
        cancelTimer();
        signal.removeEventListener("abort", wake);
        waiting.delete(waiter);
        if (waiting.size === 0) this.#waiting.delete(pool);
        resolve();
      };
      const waiter = { neededMicro: minHoldMicro(price, bounds), wake };
      const cancelTimer = this.#clock.after(settings.heldRetryMs, wake);
      signal.addEventListener("abort", wake, { once: true });
      waiting.add(waiter);
    });
  }

  // Wakes only as many as the released credits may cover: each one repeats its admission in the
  // queue that all pools share.
  #wakeWaiting(pool: string, freedMicro: bigint): void {
    let leftMicro = freedMicro;
    for (const { neededMicro, wake } of this.#waiting.get(pool) ?? []) {
      wake();
      leftMicro -= neededMicro;
      if (leftMicro <= 0n) return;
    }
  }
}

/** The request, with its id to be looked up: an earlier batch may have been committed. */
function withUsedId(request: AdmissionRequest): AdmissionRequest {
  return request.kind === "place" ? { ...request, hasNewId: false } : request;
}

function isUnavailable(error: unknown): boolean {
  return (
    error instanceof ApiError &&
    (error.reason === "billing_unavailable" || error.reason === "database_unavailable")
  );
}

declare module "../base/log.ts" {
  interface LogCodes {
    /**
     * a running request holds more credits than it needs until its end; look at the database if it
     * goes on
     */
    hold_not_shrunk: true;
    /** something locks the pools of accounts; look for long transactions in `pg_stat_activity` */
    ledger_blocked: true;
    /**
     * the database answers and takes no writes, for the reason in the line, such as a full disk;
     * requests wait or get 503, and are charged once it does
     */
    ledger_stalled: true;
    /**
     * a process stopped while the ledger was away; the others settle its requests when it is back
     */
    settlements_left: true;
  }
}
