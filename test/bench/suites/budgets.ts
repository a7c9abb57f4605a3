// What a pair of hold and settlement costs by the number that shares a batch: without a limit, and
// with a budget of the person who manages the key. To compare two commits, run it by turns in both.

import { migrate } from "../../../src/postgres/migrate.ts";
import { addAccounts, addKeys, connectLedger, findViolations, runSql } from "../books.ts";
import { Lab } from "../lab.ts";
import { cpuSecondsOfTree, spreadOf } from "../measure.ts";
import { type PairKey, startPairs } from "../pairs.ts";
import type { Result } from "../report.ts";

const accounts = 2_000;
const rounds = Number(process.env.BENCH_ROUNDS ?? 5);
const phases = [
  { name: "1 at once", width: 1, count: 600, isHot: false },
  { name: "8 at once", width: 8, count: 3_000, isHot: false },
  { name: "32 at once", width: 32, count: 8_000, isHot: false },
  { name: "32 at once on one key", width: 32, count: 8_000, isHot: true },
  { name: "256 at once", width: 256, count: 12_000, isHot: false },
] as const;

export async function budgets(): Promise<Result> {
  await using lab = new Lab();
  const { url, pid } = await lab.database();
  await migrate(url);
  const postgres = connectLedger(url);
  await addAccounts(postgres, accounts);
  await addKeys(postgres, accounts, accounts);
  const keyOf = (n: number): PairKey => ({ accountId: `acc_${n}`, keyId: `key_${n}` });
  const spreadKey = (pair: number) => keyOf(((pair * 7919) % accounts) + 1);
  const { run, stop } = await startPairs(postgres);
  await run({ count: 10_000, width: 256, keyOf: spreadKey });

  const costs = new Map<string, number[]>();
  const measure = async (state: string) => {
    for (const { name, width, count, isHot } of phases) {
      const before = cpuSecondsOfTree(pid);
      const { cpuMicros } = await run({ count, width, keyOf: isHot ? () => keyOf(1) : spreadKey });
      const micros = cpuMicros + ((cpuSecondsOfTree(pid) - before) * 1e6) / count;
      const measured = `CPU of gateway and PostgreSQL per pair, ${name}, ${state}`;
      costs.set(measured, [...(costs.get(measured) ?? []), micros]);
    }
  };
  for (let round = 0; round < rounds; round++) {
    await measure("no limit");
    await setMembers(postgres, 1_000_000_000_000_000n);
    await measure("a member with limits");
    await setMembers(postgres, null);
  }
  await stop();
  const faults = await findViolations(postgres);
  await postgres.close();
  const rows = [...costs].map(([measured, micros]) => ({
    measure: measured,
    value: spreadOf(micros),
    unit: "µs",
  }));
  return { rows, faults };
}

/** Limits what the person who manages all keys may spend. Null: lifts the limits. */
async function setMembers(
  postgres: Parameters<typeof runSql>[0],
  limit: bigint | null,
): Promise<void> {
  await runSql(postgres, "update keys set managed_by = 'person:ana' where managed_by = ''");
  await runSql(
    postgres,
    `insert into budgets (account_id, family, payer, day_limit, month_limit)
     select account_id, family, 'person:ana', $1::bigint, $1::bigint from keys
     on conflict (account_id, family, payer) do update
     set day_limit = excluded.day_limit, month_limit = excluded.month_limit`,
    [limit],
  );
  // So that no phase pays for what this has changed.
  for (const table of ["budgets", "keys"]) await runSql(postgres, `vacuum ${table}`);
}
