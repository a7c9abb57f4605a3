// Holds over connections that tests break, refuse or delay.

import { Client } from "pg";
import type { Payer } from "../../src/billing/admission.ts";
import { HoldKeeper } from "../../src/billing/holds.ts";
import { createLedgerStore } from "../../src/billing/store.ts";
import { throwUnavailable } from "../../src/postgres/failures.ts";
import type { Query } from "../../src/postgres/pipeline.ts";
import { connectPostgres, type Postgres } from "../../src/postgres/postgres.ts";
import { ManualClock, passDuring } from "./clock.ts";
import { type freshLedger, log } from "./ledger.ts";

type Ledger = Awaited<ReturnType<typeof freshLedger>>;

/**
 * A `HoldKeeper` whose connections can be broken, on the node of `ledger`, with a clock of its own.
 */
export function breakableHolds(ledger: Ledger, options: { maxWaitMs?: number } = {}) {
  const clock = new ManualClock();
  const passing = <T>(work: Promise<T>) => passDuring(() => clock.endPause(), work);
  const real = connectPostgres(ledger.url);
  // The statement after which the connection breaks without an answer, and how often.
  const broken = { after: "", times: 0 };
  const takes = (name: string) => name === broken.after && broken.times-- > 0;
  let lost = () => new Error("Connection terminated unexpectedly");
  // The error of every attempt to connect, and how often it was met.
  let connectError: Error | undefined;
  let refusals = 0;
  let before: { name: string; run: () => Promise<void> } | undefined;
  const sent: Query[] = [];
  const postgres: Postgres = {
    ...real,
    async run(statement, ...parameters) {
      sent.push(statement.with(...parameters));
      const result = await real.run(statement, ...parameters);
      if (takes(statement.name)) throwUnavailable(lost());
      return result;
    },
    async connect() {
      if (connectError) {
        refusals++;
        throw connectError;
      }
      const connection = await real.connect();
      return {
        ...connection,
        get lost() {
          return connection.lost;
        },
        async send(queries) {
          sent.push(...queries);
          const interloper = queries.some(([{ name }]) => name === before?.name)
            ? before
            : undefined;
          if (interloper) before = undefined;
          await interloper?.run();
          const answers = await connection.send(queries);
          if (!queries.some(([{ name }]) => takes(name))) return answers;
          connection.destroy();
          throw lost();
        },
      };
    },
  };
  const store = createLedgerStore(postgres);
  const { node } = ledger;
  const keeper = new HoldKeeper({
    postgres,
    store,
    log,
    nodeId: node.id,
    onLost: () => node.lose(),
    clock,
    ...options,
  });
  const holds: Pick<HoldKeeper, "place" | "settle" | "releaseUnconfirmed"> = {
    place: (request, signal) => passing(keeper.place(request, signal)),
    settle: (hold, ending) => passing(keeper.settle(hold, ending)),
    releaseUnconfirmed: () => keeper.releaseUnconfirmed(),
  };
  return {
    clock,
    /** Time stands still. */
    keeper,
    /** Pauses before another attempt end at once. */
    holds,
    passing,
    refusals: () => refusals,
    /** The values of every statement of this name that was sent, in order. */
    sentTo: (name: string) =>
      sent.filter(([statement]) => statement.name === name).map(([, values]) => values),
    refuseConnections(error: Error | undefined) {
      connectError = error;
    },
    /** Calls `run` once, just before the statement of this name is sent. */
    runBefore(name: string, run: () => Promise<void>) {
      before = { name, run };
    },
    /** Breaks connections with this error from now on. */
    breakWith(error: Error) {
      lost = () => error;
    },
    breakAfter(name: string, times = 1) {
      broken.after = name;
      broken.times = times;
    },
    async close() {
      await passing(keeper.close());
      await real.close();
    },
  };
}

/** Keeps the pool of `payer` locked, as a host that hangs during a transaction does. */
export async function lockPool(ledger: Ledger, payer: Payer) {
  const client = new Client({ connectionString: ledger.url });
  await client.connect();
  await client.query("begin");
  await client.query("select from pools where account_id = $1 for update", [payer.accountId]);
  return { unlock: () => client.end() };
}

/** The statements that wait for a lock. */
export const lockWaits =
  "select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'";
