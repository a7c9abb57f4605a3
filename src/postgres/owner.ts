// A connection of the owner of the tables, for work that the role of the gateway has no right to:
// months are closed and removed with it.

import { inTransaction } from "./migrate.ts";
import { countCharges, dropPartition, readMonths, sealPartition } from "./partitions.ts";
import { Servers } from "./servers.ts";
import { runOn } from "./session.ts";
import type { Runner } from "./statement.ts";

/** Runs statements in the transaction if there is one. */
export type Owner = Runner & {
  /**
   * Runs `work` in one transaction that waits for locks so shortly that requests do not notice,
   * and again while it meets one. One process at a time. `name`: what an Error calls it.
   */
  transaction<T>(name: string, work: () => Promise<T>): Promise<T>;
  /** The months that have a partition, `YYYY-MM-01`, in their order. */
  readMonths(): Promise<string[]>;
  /** Makes the partition of a past month refuse charges. In a transaction. */
  sealMonth(month: string): Promise<void>;
  /** Counts the charges of a month that were settled after a time and up to another. */
  countCharges(month: string, times: { after: string; upTo: string }): Promise<bigint>;
  /** Removes the charges of a month. In a transaction. */
  dropMonth(month: string): Promise<void>;
};

// One statement sums up or reads a part of a month.
const statementMsMax = 120_000;

// Of a part of a month: by its index, on one processor, and without compiling the statement. A plan
// for any number of rows takes twice as long as one for these.
const plannerSettings = {
  plan_cache_mode: "force_custom_plan",
  jit: "off",
  max_parallel_workers_per_gather: 0,
  random_page_cost: 1.1,
  work_mem: "64MB",
};

/** Connects as the owner. `end` closes the connection. */
export async function ownerOf(url: string): Promise<Owner & { end(): Promise<void> }> {
  const { client } = await new Servers(url).connect({
    statement_timeout: statementMsMax,
    ...plannerSettings,
  });
  return {
    run: (statement, ...parameters) => runOn(client, statement, statement.with(...parameters)),
    transaction: (name, work) => inTransaction(client, name, work),
    readMonths: () => readMonths(client),
    sealMonth: (month) => sealPartition(client, month),
    countCharges: (month, times) => countCharges(client, month, times),
    dropMonth: (month) => dropPartition(client, month),
    end: () => client.end(),
  };
}
