// The parts that keep data: the ledger, Redis, and the mail server.

import { pause, systemClock } from "../base/clock.ts";
import type { Log } from "../base/log.ts";
import { createMailer, type Mailer } from "../mail/mail.ts";
import { startEmbedded } from "../postgres/embedded/embedded.ts";
import { Lease } from "../postgres/lease.ts";
import { type OpenLedger, openLedger } from "../postgres/open-ledger.ts";
import { checkConnection, checkDatabase } from "../postgres/preflight.ts";
import { many } from "../postgres/statement.ts";
import { databaseOf, waitForDatabase } from "../postgres/wait-for-database.ts";
import { connectRedis, type Redis } from "../redis/redis.ts";
import { LedgerWatch } from "./ledger-watch.ts";
import { MonthKeeper } from "./month-keeper.ts";
import type { GatewayParts } from "./parts.ts";
import type { Shared } from "./worker.ts";

export type Data = {
  readonly ledger: OpenLedger;
  readonly postgres: OpenLedger["postgres"];
  readonly months: MonthKeeper;
  /** The problem of a database elsewhere. Undefined: none. */
  ledgerProblem(): string | undefined;
  readonly redis: Redis | undefined;
  /** Of Redis, or of what the workers of a machine share. */
  readonly hints: Shared["hints"] | undefined;
  readonly mailer: Mailer | undefined;
  /** Runs work that is harmless when repeated until it reaches the ledger. */
  untilReached<T>(work: () => Promise<T>): Promise<T>;
  /** Runs the work of a first start while no other process of the ledger does. */
  firstStart<T>(work: () => Promise<T>): Promise<T>;
};

/** The time for which a process that died in its first start keeps others from theirs. */
const firstStartMsMax = 10_000;

/** Opens everything. `stack` gets what closes it; the database closes last. */
export async function openData(parts: GatewayParts, stack: AsyncDisposableStack): Promise<Data> {
  const { config, log } = parts;
  const url = config.databaseUrl ?? (await embed(parts, stack));
  const ledger = await reachLedger(parts, url);
  log.debug("ledger migrated");
  const postgres = stack.adopt(ledger.postgres, (one) => one.close());
  const untilReached = createWait(parts, config.databaseUrl);
  // On a slow machine a connection takes longer than a request may wait. What follows uses these.
  await untilReached(() => postgres.readChangeable());
  await untilReached(() => postgres.heartbeats.run(ping));
  const months = new MonthKeeper(ledger, log);
  await untilReached(() => months.start());
  stack.defer(() => months.stop());
  parts.metrics?.readOne("gateway_ledger_months_ahead", () => months.monthsAhead);
  const watch = await watchLedger(parts, { ledger, untilReached }, stack);
  const redis = openRedis(config, log, stack);
  return {
    ledger,
    postgres,
    months,
    ledgerProblem: () => watch?.problem,
    redis,
    hints: redis ?? parts.shared?.hints,
    mailer: config.smtp && stack.adopt(createMailer(config.smtp), (one) => one.close()),
    untilReached,
    async firstStart(work) {
      const lease = new Lease(postgres, { task: "server/first-start", ms: firstStartMsMax });
      while (!(await untilReached(() => lease.take()))) await pause(systemClock, 100);
      try {
        return await work();
      } finally {
        await lease.release().catch(() => undefined);
      }
    },
  };
}

/** Watches a database that is elsewhere. */
async function watchLedger(
  { config, log, metrics }: GatewayParts,
  { ledger, untilReached }: Pick<Data, "ledger" | "untilReached">,
  stack: AsyncDisposableStack,
): Promise<LedgerWatch | undefined> {
  if (config.databaseUrl === undefined) return undefined;
  const { postgres, roleStatements } = ledger;
  const watch = new LedgerWatch(postgres, log);
  await untilReached(() => watch.start({ ...config, roleStatements }));
  metrics?.readOne("gateway_ledger_sync_standbys", () => watch.syncStandbys);
  metrics?.readOne("gateway_ledger_oldest_snapshot_seconds", () => watch.oldestSnapshotS);
  stack.defer(() => watch.stop());
  return watch;
}

const ping = many<undefined, void>(
  "server/ping",
  "select",
  () => [],
  () => undefined,
  "",
);

/** As `Data.untilReached`, of the database at `url`. */
function createWait({ config, log, giveUp }: GatewayParts, url: string | undefined) {
  const database =
    url === undefined ? `the embedded database in ${config.dataDir}` : databaseOf(url);
  const wait = { database, withinMs: config.databaseWaitMs, giveUp, log };
  return <T>(work: () => Promise<T>) => waitForDatabase(wait, work);
}

/** Migrates the database, and connects to it. */
async function reachLedger(parts: GatewayParts, url: string): Promise<OpenLedger> {
  const { databaseUrl, migrationDatabaseUrl: ownerUrl } = parts.config;
  const untilReached = createWait(parts, databaseUrl);
  if (databaseUrl !== undefined) await untilReached(() => checkDatabase(databaseUrl));
  if (ownerUrl !== undefined) await createWait(parts, ownerUrl)(() => checkConnection(ownerUrl));
  return untilReached(() => openLedger({ url, ownerUrl }, parts.log));
}

async function embed(
  { config, log, embedded }: GatewayParts,
  stack: AsyncDisposableStack,
): Promise<string> {
  const started = await (embedded ?? startEmbedded(config.dataDir, log));
  return stack.adopt(started, (one) => one.stop()).url;
}

function openRedis(
  { redisUrl: url, cell }: GatewayParts["config"],
  log: Log,
  stack: AsyncDisposableStack,
): Redis | undefined {
  return url === undefined
    ? undefined
    : stack.adopt(connectRedis(url, log, cell), (redis) => redis.close());
}
