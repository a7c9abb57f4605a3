// Membership of this process among the processes on one database: it sends heartbeats, detects dead
// processes and settles the requests that they left behind.

import { Basis, Outcome } from "../../gen/gateway/billing/v1/receipt_pb.ts";
import { type Clock, every, pause, systemClock, withTimeout } from "../base/clock.ts";
import { timeOrderedId } from "../base/ids.ts";
import type { Log } from "../base/log.ts";
import { heartbeatsMissedMax } from "../base/shown-figures.ts";
import { tokenCategories } from "../base/token-categories.ts";
import { isUniqueViolation } from "../postgres/postgres.ts";
import { keyOf, type RequestKey, requestKeyOf } from "./admission.ts";
import type { HoldKeeper } from "./holds.ts";
import { hasEnded, identifyProcess } from "./local-process.ts";
import type { StoredHold } from "./rows.ts";
import type { LedgerStore, NodeState } from "./store.ts";

const tickMs = 1_000;
/** Shorter than a tick, because ticks are not exact. */
const pollIntervalMs = 900;
/** In ticks. */
const checkpointEvery = 2;
/**
 * A tick that is so late shows that this process was paused. Other processes declare it dead later
 * than this.
 */
const pauseMs = 5_000;
const confirmMsMax = 10_000;
const confirmRetryMs = 250;
/**
 * How long a stopping process waits for the ledger. Without deregistration the other processes
 * detect its end by the missing heartbeats.
 */
const deregisterMsMax = 3_000;

/** The row of this process in the `nodes` table. */
export class ClusterNode {
  readonly #store: LedgerStore;
  readonly #log: Log;
  readonly #onLost: () => void;
  readonly #onRegister: ((nodeId: string) => void) | undefined;
  readonly #onReaped: ((requests: number) => void) | undefined;
  readonly #onEndAsked: ((requests: readonly RequestKey[]) => void) | undefined;
  readonly #describe: (() => string | undefined) | undefined;
  readonly #clock: Clock;
  /** The description that the ledger has, with the id of the node. */
  #described = "";
  /**
   * A node is dead after this many polls without a heartbeat. Polls, not seconds, so that an outage
   * of the database declares no node dead.
   */
  readonly #silentPollsMax: number;
  readonly #pollIntervalMs: number;
  /** Page size of orphans. */
  readonly #orphansMax: number;
  #id = timeOrderedId("node_");
  #isRegistered = false;
  #live: readonly string[] = [];
  /** Nodes whose process has ended, by the word of `markEnded`. */
  readonly #ended = new Set<string>();
  readonly #stopping = new AbortController();
  #stopTicks = () => {};
  /** Time of the last tick. Undefined before the start. */
  #tickedAtMs: number | undefined;
  #confirming: Promise<void> | undefined;
  #ticking: Promise<void> | undefined;
  #ticks = 0;
  /** Names of the running background tasks. */
  readonly #backgroundTasks = new Set<string>();
  #isUnreachable = false;
  /** Time of the last heartbeat. Undefined before the first one. */
  #heartbeatAtMs: number | undefined;
  /** Orphans that are being settled, by request. */
  readonly #reaping = new Set<string>();
  /** The last orphan of the page before. Undefined before the first page. */
  #reapedUpTo: RequestKey | undefined;

  constructor(parts: {
    store: LedgerStore;
    log: Log;
    onLost: () => void;
    /** Called with each id of this process, before the ledger knows it. */
    onRegister?: ((nodeId: string) => void) | undefined;
    /** Called with the number of requests that were settled for other processes. */
    onReaped?: ((requests: number) => void) | undefined;
    /** Called with the requests of this process that somebody wants ended. */
    onEndAsked?: ((requests: readonly RequestKey[]) => void) | undefined;
    /** How this process describes itself, as JSON. It is asked every second. */
    describe?: (() => string | undefined) | undefined;
    clock?: Clock | undefined;
    silentPollsMax?: number;
    pollIntervalMs?: number;
    orphansMax?: number;
  }) {
    this.#store = parts.store;
    this.#log = parts.log;
    this.#onLost = parts.onLost;
    this.#onRegister = parts.onRegister;
    this.#onReaped = parts.onReaped;
    this.#onEndAsked = parts.onEndAsked;
    this.#describe = parts.describe;
    this.#clock = parts.clock ?? systemClock;
    this.#silentPollsMax = parts.silentPollsMax ?? heartbeatsMissedMax;
    this.#pollIntervalMs = parts.pollIntervalMs ?? pollIntervalMs;
    this.#orphansMax = parts.orphansMax ?? 500;
  }

  /**
   * Undefined while this process runs without a pause. After a pause, other processes may have
   * settled its requests: resolves when a heartbeat has found the node's row again, or after 10 s
   * while the ledger is unreachable. Nothing may be delivered before that.
   */
  confirmAlive(): Promise<void> | undefined {
    const nowMs = this.#clock.now();
    const isLate = this.#tickedAtMs !== undefined && nowMs - this.#tickedAtMs >= tickMs + pauseMs;
    if (!isLate) return this.#confirming;
    this.#tickedAtMs = nowMs;
    this.#log.warn(
      { code: "process_paused" },
      "this process was paused: delivering nothing until the ledger confirms it",
    );
    this.#confirming ??= this.#confirmInTime().finally(() => {
      this.#confirming = undefined;
    });
    return this.#confirming;
  }

  /**
   * The process of this node has ended, as its parent saw: the next tick settles its requests. Only
   * for a process that has exited.
   */
  markEnded(nodeId: string): void {
    this.#ended.add(nodeId);
  }

  /** Id of this process. A process that was declared dead gets a new one. */
  id = (): string => this.#id;
  /** Sorted ids of the nodes that were registered at the last tick. */
  live = (): readonly string[] => this.#live;

  /** How long the ledger has taken no heartbeat of this process. */
  get silentMs(): number {
    return this.#heartbeatAtMs === undefined ? 0 : this.#clock.now() - this.#heartbeatAtMs;
  }

  /** Registers the node and starts its ticks. */
  async start(holds: HoldKeeper): Promise<void> {
    await this.#register();
    await this.#tick(holds);
    this.#tickedAtMs = this.#clock.now();
    // Not a `Task`: while a heartbeat hangs, this process is not paused.
    this.#stopTicks = every(this.#clock, tickMs, () => {
      void this.confirmAlive();
      this.#tickedAtMs = this.#clock.now();
      this.#ticking ??= this.#tickSafely(holds).finally(() => {
        this.#ticking = undefined;
      });
    });
  }

  /** Stops the ticks and deregisters the node. Other processes settle the holds that it leaves. */
  async stop(): Promise<void> {
    this.#stopTicks();
    this.#stopping.abort();
    await withTimeout(this.#deregister(), deregisterMsMax, () => undefined);
  }

  async #confirmInTime(): Promise<void> {
    const timeout = new AbortController();
    const confirmed = this.#confirm(AbortSignal.any([timeout.signal, this.#stopping.signal]));
    await withTimeout(confirmed, confirmMsMax, () => timeout.abort(), this.#clock);
  }

  async #confirm(signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      try {
        await this.#heartbeat();
        return;
      } catch {
        await pause(this.#clock, confirmRetryMs, signal);
      }
    }
  }

  // A heartbeat after the removal would register the node again.
  async #deregister(): Promise<void> {
    await Promise.all([this.#ticking, this.#confirming]);
    if (this.#isRegistered) await this.#store.deleteNode(this.#id).catch(() => undefined);
  }

  /** Sends one heartbeat, detects dead nodes and settles one page of orphans. */
  async poll(holds: HoldKeeper): Promise<void> {
    const dead = await this.#heartbeat();
    await this.#reap(holds, dead, await this.#findOrphans(dead));
  }

  /** Called when the row of this node no longer exists. */
  lose(): void {
    this.#isRegistered = false;
    this.#onLost();
  }

  async #tickSafely(holds: HoldKeeper): Promise<void> {
    try {
      await this.#tick(holds);
      if (this.#isUnreachable) this.#log.info("the ledger is reachable again");
      this.#isUnreachable = false;
    } catch (err) {
      if (!this.#isUnreachable)
        this.#log.error({ code: "ledger_unreachable", err }, "the ledger is unreachable");
      this.#isUnreachable = true;
    }
  }

  async #tick(holds: HoldKeeper): Promise<void> {
    const dead = await this.#heartbeat();
    this.#ticks += 1;
    this.#runInBackground("reap", async () => {
      const orphans = await this.#findOrphans(dead);
      this.#reap(holds, dead, orphans).catch((err: unknown) =>
        this.#log.warn({ code: "node_not_removed", err }, "cannot remove a dead node"),
      );
    });
    this.#runInBackground("end requests", async () => {
      this.#onEndAsked?.(await this.#store.takeEnded(this.#id));
    });
    this.#runInBackground("describe", () => this.#sendDescription());
    this.#runInBackground("release unconfirmed", () => holds.releaseUnconfirmed());
    // While it fails, the failure is the one that was reported before.
    this.#runInBackground("try writes", () => holds.tryWrites().catch(() => undefined));
    if (this.#ticks % checkpointEvery === 0)
      this.#runInBackground("checkpoint", () => holds.checkpoint());
  }

  // Heartbeats do not wait for these tasks: while a pool is locked for long, this process must not
  // be declared dead.
  #runInBackground(task: string, run: () => Promise<void>): void {
    if (this.#backgroundTasks.has(task)) return;
    this.#backgroundTasks.add(task);
    run()
      .catch((err: unknown) =>
        this.#log.warn({ code: "background_task_failed", err, task }, "background task failed"),
      )
      .finally(() => this.#backgroundTasks.delete(task));
  }

  /** Writes only what has changed: most descriptions never do. */
  async #sendDescription(): Promise<void> {
    const text = this.#describe?.();
    const described = `${this.#id} ${text}`;
    if (text === undefined || described === this.#described) return;
    await this.#store.reportNode(this.#id, text);
    this.#described = described;
  }

  // Returns the ids of the dead nodes.
  async #heartbeat(): Promise<string[]> {
    const id = this.#id;
    // After a pause, a tick and `confirmAlive` send heartbeats at once: only one registers again.
    if (!(await this.#store.recordHeartbeat(id)) && id === this.#id) await this.#reregister();
    this.#heartbeatAtMs = this.#clock.now();
    return this.#findDead(await this.#store.pollNodes(this.#id, this.#pollIntervalMs));
  }

  async #register(): Promise<void> {
    this.#onRegister?.(this.#id);
    await this.#store.registerNode(this.#id, identifyProcess());
    this.#isRegistered = true;
  }

  // Other processes have settled our requests by their last metered usage, so the streams of these
  // requests must fail.
  async #reregister(): Promise<void> {
    this.#log.error(
      { code: "declared_dead", nodeId: this.#id },
      "this process was declared dead; failing its running requests and registering again",
    );
    this.lose();
    this.#id = timeOrderedId("node_");
    await this.#register();
  }

  #findDead(nodes: readonly NodeState[]): string[] {
    this.#live = nodes.map(({ nodeId }) => nodeId);
    for (const nodeId of this.#ended) if (!this.#live.includes(nodeId)) this.#ended.delete(nodeId);
    const dead = nodes.filter(
      ({ nodeId, process, silentPolls }) =>
        nodeId !== this.#id &&
        (silentPolls >= this.#silentPollsMax || this.#ended.has(nodeId) || hasEnded(process)),
    );
    return dead.map(({ nodeId }) => nodeId);
  }

  // Pages through all orphans, so that orphans that cannot be settled block neither the next page
  // nor the next tick.
  async #findOrphans(dead: readonly string[]): Promise<StoredHold[]> {
    const found = await this.#store.findOrphans(dead, this.#reapedUpTo, this.#orphansMax);
    const last = found.length < this.#orphansMax ? undefined : found.at(-1);
    this.#reapedUpTo = last && requestKeyOf(last.hold);
    return found.filter(({ hold }) => !this.#reaping.has(keyOf(requestKeyOf(hold))));
  }

  async #reap(
    holds: HoldKeeper,
    dead: readonly string[],
    orphans: readonly StoredHold[],
  ): Promise<void> {
    const reaped = await Promise.allSettled(orphans.map((orphan) => this.#reapOne(holds, orphan)));
    const failed = reaped.find((one) => one.status === "rejected");
    this.#onReaped?.(reaped.filter(({ status }) => status === "fulfilled").length);
    if (failed)
      this.#log.error(
        { code: "orphan_not_settled", err: failed.reason },
        "cannot settle an orphaned request",
      );
    if (orphans.length > 0)
      this.#log.warn(
        { code: "requests_reaped", requests: orphans.length, dead },
        "settled the requests of dead processes or past their deadlines",
      );
    for (const nodeId of dead) await this.#store.deleteNode(nodeId);
  }

  async #reapOne(holds: HoldKeeper, { hold, used }: StoredHold): Promise<void> {
    const requestKey = keyOf(requestKeyOf(hold));
    this.#reaping.add(requestKey);
    try {
      const isUsed = used.webSearches > 0 || tokenCategories.some((category) => used[category] > 0);
      const basis = isUsed ? Basis.PARTLY_COUNTED : Basis.NONE;
      await holds.settle(hold, { usage: used, outcome: Outcome.REAPED, basis, attempts: [] });
    } catch (error) {
      if (!isUniqueViolation(error)) throw error;
      this.#log.error(
        { code: "request_id_used_twice", ...requestKeyOf(hold) },
        "a request id was used twice; releasing the hold of the request without a charge",
      );
      await this.#store.releaseHold(hold);
    } finally {
      this.#reaping.delete(requestKey);
    }
  }
}

declare module "../base/log.ts" {
  interface LogCodes {
    /**
     * a task that repeats every second failed, and is repeated; look at the database if it goes on
     */
    background_task_failed: true;
    /**
     * this process was silent for 12 seconds, and its requests were settled by others; look for
     * pauses of the machine and of the network to the database
     */
    declared_dead: true;
    /** requests get 503; bring the database back. `/health` says what is wrong */
    ledger_unreachable: true;
    /** a dead process is still listed, and it is repeated; look at the database if it goes on */
    node_not_removed: true;
    /**
     * a request of a dead process keeps its hold, and it is repeated; look at the error of the line
     */
    orphan_not_settled: true;
    /**
     * the machine stopped this process for seconds; look for swapping, overcommitted hosts and
     * suspended machines
     */
    process_paused: true;
    /** a hold was released without a charge; a caller repeats ids over months, which it must not */
    request_id_used_twice: true;
    /**
     * a process died, and its requests were settled by their last recorded usage; find out why it
     * died
     */
    requests_reaped: true;
  }
}
