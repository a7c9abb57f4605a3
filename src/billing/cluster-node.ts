// This process among the others on the same database: it shows that it lives, notices when others
// died, and settles what they left.

import { Basis, Outcome } from "../../gen/gateway/billing/v1/billing_pb.ts";
import { timeOrderedId } from "../base/ids.ts";
import type { Log } from "../base/log.ts";
import { withTimeout } from "../base/timeout.ts";
import { tokenCategories } from "../base/token-categories.ts";
import { isUniqueViolation } from "../postgres/postgres.ts";
import type { HoldKeeper } from "./holds.ts";
import type { StoredHold } from "./rows.ts";
import type { LedgerStore } from "./store.ts";

const everyMs = 1_000;
const checkpointEvery = 2;
/**
 * How long a ledger that is away may keep a process that ends; the others find out by themselves
 * that it is gone.
 */
const deregisterMsMax = 5_000;

export type NodeWatch = {
  /** Id of this start of this process. A node that was declared dead gets a new one. */
  readonly id: () => string;
  /** Ids of the nodes seen at the last poll, in order. */
  readonly live: () => readonly string[];
};

/** The life of this process in the `nodes` table. */
export class ClusterNode implements NodeWatch {
  readonly #store: LedgerStore;
  readonly #log: Log;
  readonly #onLost: () => void;
  /** Polls without a heartbeat, after which a node counts as dead. */
  readonly #silentPollsMax: number;
  /** Requests that are settled for others at a time. */
  readonly #orphansMax: number;
  #id = timeOrderedId("node_");
  #entered = false;
  #live: readonly string[] = [];
  /**
   * By node: the last heartbeat seen, and the successful polls since it changed. Polls, not
   * seconds: an outage kills nobody.
   */
  readonly #seen = new Map<string, { heartbeat: bigint; silentPolls: number }>();
  #timer: NodeJS.Timeout | undefined;
  #turn: Promise<void> | undefined;
  #turns = 0;
  /** What runs beside the heartbeats. */
  readonly #errands = new Set<string>();
  #failing = false;
  /** Requests that were left behind and are being settled. */
  readonly #reaping = new Set<string>();
  #reapedUpTo = "";

  constructor(parts: {
    store: LedgerStore;
    log: Log;
    onLost: () => void;
    silentPollsMax?: number;
    orphansMax?: number;
  }) {
    this.#store = parts.store;
    this.#log = parts.log;
    this.#onLost = parts.onLost;
    this.#silentPollsMax = parts.silentPollsMax ?? 60;
    this.#orphansMax = parts.orphansMax ?? 500;
  }

  id = () => this.#id;
  live = () => this.#live;

  /** Enters the table and begins to poll. */
  async start(holds: HoldKeeper): Promise<void> {
    await this.#enter();
    await this.#turnOnce(holds);
    this.#timer = setInterval(() => {
      this.#turn ??= this.#take(holds).finally(() => {
        this.#turn = undefined;
      });
    }, everyMs);
  }

  /** Stops polling and leaves the table. Whatever this node still holds is left to the others. */
  async stop(): Promise<void> {
    clearInterval(this.#timer);
    await withTimeout(this.#leave(), deregisterMsMax, () => undefined);
  }

  async #leave(): Promise<void> {
    await this.#turn;
    if (this.#entered) await this.#store.deleteNode(this.#id).catch(() => undefined);
  }

  /** One heartbeat, one look at the others, and the settlement of what nobody else will settle. */
  async poll(holds: HoldKeeper): Promise<void> {
    const dead = await this.#beat();
    await this.#reap(holds, dead, await this.#findLeftBehind(dead));
  }

  /** Called when the ledger answers that this node's row is gone. */
  lose(): void {
    this.#entered = false;
    this.#onLost();
  }

  async #take(holds: HoldKeeper): Promise<void> {
    try {
      await this.#turnOnce(holds);
      if (this.#failing) this.#log.info("the ledger is reachable again");
      this.#failing = false;
    } catch (err) {
      if (!this.#failing) this.#log.error({ err }, "the ledger is not reachable");
      this.#failing = true;
    }
  }

  async #turnOnce(holds: HoldKeeper): Promise<void> {
    const dead = await this.#beat();
    this.#turns += 1;
    this.#send("reaping", async () => {
      const orphans = await this.#findLeftBehind(dead);
      this.#reap(holds, dead, orphans).catch((err: unknown) =>
        this.#log.warn({ err }, "a dead node could not be removed"),
      );
    });
    this.#send("letting go", () => holds.releaseAbandoned());
    if (this.#turns % checkpointEvery === 0) this.#send("checkpointing", () => holds.checkpoint());
  }

  // A hold whose pool is locked for long must not make this process look dead.
  #send(errand: string, run: () => Promise<void>): void {
    if (this.#errands.has(errand)) return;
    this.#errands.add(errand);
    run()
      .catch((err: unknown) => this.#log.warn({ err, errand }, "the ledger did not answer"))
      .finally(() => this.#errands.delete(errand));
  }

  // Answers the nodes that died.
  async #beat(): Promise<string[]> {
    if (!(await this.#store.recordHeartbeat(this.#id))) await this.#reenter();
    return this.#observe(await this.#store.readNodes());
  }

  async #enter(): Promise<void> {
    await this.#store.registerNode(this.#id);
    this.#entered = true;
  }

  // The others have settled our requests by their last metered figures, so their streams must not
  // end as if all was well.
  async #reenter(): Promise<void> {
    this.#log.error(
      { nodeId: this.#id },
      "this process was declared dead; its running requests end and it starts over",
    );
    this.lose();
    this.#id = timeOrderedId("node_");
    await this.#enter();
  }

  #observe(heartbeats: ReadonlyMap<string, bigint>): string[] {
    this.#live = [...heartbeats.keys()];
    for (const nodeId of this.#seen.keys()) if (!heartbeats.has(nodeId)) this.#seen.delete(nodeId);
    const dead: string[] = [];
    for (const [nodeId, heartbeat] of heartbeats) {
      const before = this.#seen.get(nodeId);
      const silentPolls = before?.heartbeat === heartbeat ? before.silentPolls + 1 : 0;
      this.#seen.set(nodeId, { heartbeat, silentPolls });
      if (silentPolls >= this.#silentPollsMax && nodeId !== this.#id) dead.push(nodeId);
    }
    return dead;
  }

  // Those that stay, whatever the reason, keep neither those after them nor the next poll from
  // being served.
  async #findLeftBehind(dead: readonly string[]): Promise<StoredHold[]> {
    const found = await this.#store.findOrphans(dead, this.#reapedUpTo, this.#orphansMax);
    this.#reapedUpTo = found.length < this.#orphansMax ? "" : (found.at(-1)?.hold.requestId ?? "");
    return found.filter(({ hold }) => !this.#reaping.has(hold.requestId));
  }

  async #reap(
    holds: HoldKeeper,
    dead: readonly string[],
    orphans: readonly StoredHold[],
  ): Promise<void> {
    const reaped = await Promise.allSettled(orphans.map((orphan) => this.#reapOne(holds, orphan)));
    const failed = reaped.find((one) => one.status === "rejected");
    if (failed)
      this.#log.error(
        { err: failed.reason },
        "a request that was left behind could not be settled",
      );
    if (orphans.length > 0)
      this.#log.warn(
        { requests: orphans.length, dead },
        "settled what dead processes or lost requests had left",
      );
    for (const nodeId of dead) await this.#store.deleteNode(nodeId);
  }

  async #reapOne(holds: HoldKeeper, { hold, used }: StoredHold): Promise<void> {
    this.#reaping.add(hold.requestId);
    try {
      const isUsed = tokenCategories.some((category) => used[category] > 0);
      const basis = isUsed ? Basis.PARTLY_COUNTED : Basis.NONE;
      await holds.settle(hold, { usage: used, outcome: Outcome.REAPED, basis, attempts: [] });
    } catch (error) {
      if (!isUniqueViolation(error)) throw error;
      this.#log.error(
        { requestId: hold.requestId },
        "a request id was used twice; the hold of the one without a charge is given back",
      );
      await this.#store.releaseHold(hold);
    } finally {
      this.#reaping.delete(hold.requestId);
    }
  }
}
