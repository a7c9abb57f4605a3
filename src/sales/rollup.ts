// The roll-up: adds charges to the sums of their day and month in the order of their settlement,
// behind the requests and one process at a time. A page of charges is added and the cursor moved in
// one transaction, so each charge is counted once, whenever a process dies. A charge that is
// settled late is added to the day of its admission as any other.
//
// Written anew, the sums are removed by slices first; the progress says so, and a process that
// comes later goes on where another one has died.

import * as sql from "../../gen/sql/sales.ts";
import { randomId } from "../base/ids.ts";
import type { Log } from "../base/log.ts";
import { runSlice } from "../base/slices.ts";
import { Task, warnOnce } from "../base/task.ts";
import { Horizon, settlementMsMax } from "../postgres/horizon.ts";
import { Lease } from "../postgres/lease.ts";
import { isBlocked, type Postgres } from "../postgres/postgres.ts";
import type { Runner } from "../postgres/statement.ts";

const everyMs = 60_000;
/** Longer than a page and its rest take. */
const leaseMs = 60_000;
const chargesPerPage = 5_000;
const rowsPerSlice = 20_000;

type Parts = {
  readonly postgres: Pick<Postgres, "run" | "transaction">;
  readonly log: Log;
  /** Milliseconds between the settlement of a charge and the first look at it. */
  readonly marginMs?: number;
  /** False: it takes all the time of the database that it can get. Default: true. */
  readonly rests?: boolean;
};

export class SalesRollup {
  readonly #postgres: Parts["postgres"];
  readonly #marginMs: number;
  readonly #lease = { task: "sales", holder: randomId("sales_"), ms: leaseMs };
  readonly #slice: typeof runSlice;
  readonly #horizon: Horizon;
  readonly #adding: Task;
  /** Charges that this process has added. */
  added = 0;
  #lag: number | undefined;

  constructor({ postgres, log, marginMs = settlementMsMax, rests = true }: Parts) {
    this.#postgres = postgres;
    this.#marginMs = marginMs;
    this.#slice = rests ? runSlice : (slice) => slice();
    this.#horizon = new Horizon(postgres);
    this.#adding = new Task({
      run: async (stopping) => {
        await this.run(stopping);
      },
      everyMs,
      report: warnOnce(log, {
        code: "sales_not_added",
        failed: "charges cannot be added to the sums of sales yet",
      }),
    });
  }

  /**
   * Seconds since the first charge was settled that the sums lack. Undefined while another process
   * adds.
   */
  get lag(): number | undefined {
    return this.#lag;
  }

  start(): void {
    this.#adding.start();
  }

  async stop(): Promise<void> {
    await this.#adding.stop();
    await this.#release();
  }

  /**
   * Adds what can be added now. Returns false if it did not get to the end: another process adds,
   * or a transaction that runs may still show charges.
   */
  async run(stopping?: AbortSignal): Promise<boolean> {
    this.#lag = undefined;
    try {
      while (await this.#slice(() => this.#empty(), stopping));
      const until = await this.#horizon.read();
      if (until === undefined) return false;
      while (await this.#slice(() => this.#addPage(until), stopping));
      const { lagSeconds } = await this.#postgres.run(sql.readSalesProgress, { since: until });
      this.#lag = lagSeconds ?? 0;
      return true;
    } catch (error) {
      if (error instanceof TakenElsewhere || isBlocked(error) || stopping?.aborted) return false;
      throw error;
    } finally {
      await this.#release();
    }
  }

  /**
   * Writes all sums anew from the charges that are here, and returns how many charges are in them.
   * Sums of months whose charges were removed stay. A process that dies in it leaves the rest to
   * the next run of any process.
   */
  async rebuild(pause: () => Promise<unknown>): Promise<bigint> {
    await this.#postgres.run(sql.beginEmptying);
    const { now } = await this.#postgres.run(sql.countSales);
    const since = new Date(now.getTime() - this.#marginMs);
    for (;;) {
      await this.run();
      const { isEmptying, isComplete } = await this.#postgres.run(sql.readSalesProgress, { since });
      if (!isEmptying && isComplete) return (await this.#postgres.run(sql.countSales)).charges;
      await pause();
    }
  }

  /** Removes a slice of the sums if they are to be written anew. Returns whether there are more. */
  async #empty(): Promise<boolean> {
    return this.#postgres.transaction(async (tx) => {
      const { isEmptying } = await this.#lockProgress(tx);
      if (!isEmptying) return false;
      const { removed } = await tx.run(sql.removeSales, { rows: rowsPerSlice });
      if (removed === rowsPerSlice) return true;
      await tx.run(sql.endEmptying);
      return false;
    });
  }

  /** Adds a page. Returns whether there may be more. */
  async #addPage(until: string): Promise<boolean> {
    const horizon = { until, marginMs: this.#marginMs };
    const charges = await this.#postgres.transaction(async (tx) => {
      const { isEmptying, ...cursor } = await this.#lockProgress(tx);
      // Somebody wants them written anew: the next run does it.
      if (isEmptying) return 0;
      const page = await tx.run(sql.addPage, { ...cursor, ...horizon, rows: chargesPerPage });
      const { settledAt, requestId, accountId } = page;
      if (settledAt !== null && requestId !== null && accountId !== null)
        await tx.run(sql.moveSalesProgress, { settledAt, requestId, accountId });
      if (page.charges < chargesPerPage) await tx.run(sql.completeSales, horizon);
      return page.charges;
    });
    this.added += charges;
    return charges === chargesPerPage;
  }

  /** Keeps the lease, and the progress as it is. Throws `TakenElsewhere`. */
  async #lockProgress(tx: Runner): Promise<sql.LockSalesProgressRow> {
    if (!(await new Lease(tx, this.#lease).take())) throw new TakenElsewhere();
    return tx.run(sql.lockSalesProgress);
  }

  /** Otherwise the lease ends by itself. */
  async #release(): Promise<void> {
    await new Lease(this.#postgres, this.#lease).release().catch(() => undefined);
  }
}

/** Another process adds charges. */
class TakenElsewhere extends Error {}

declare module "../base/log.ts" {
  interface LogCodes {
    /** the reports of sales grow old, and nothing is lost; look at the database */
    sales_not_added: true;
  }
}
