// The ledger alone: pairs of hold and settlement per second, spread over many accounts and on one.

import { create } from "@bufbuild/protobuf";
import { Basis, InputCategory, Outcome } from "../../../gen/gateway/billing/v1/billing_pb.ts";
import { UsageSchema } from "../../../gen/gateway/common/v1/usage_pb.ts";
import type { Payer } from "../../../src/billing/admission.ts";
import { createBilling } from "../../../src/billing/billing.ts";
import { priceVersion } from "../../../src/billing/price.ts";
import { newRequestId } from "../../../src/ids.ts";
import { createLog } from "../../../src/log.ts";
import { migrate } from "../../../src/postgres/migrate.ts";
import { connectPostgres } from "../../../src/postgres/postgres.ts";
import { Lab } from "../lab.ts";
import { cpuSeconds, spreadOf } from "../measure.ts";
import type { Row } from "../report.ts";

const accounts = 10_000;
const pairs = 20_000;
const concurrency = 1_000;
const rounds = 3;

export async function ledger(): Promise<{ rows: Row[]; faults: string[] }> {
  await using lab = new Lab();
  const { url } = await lab.database();
  await migrate(url);
  const postgres = connectPostgres(url);
  const run = (text: string, values: unknown[] = []) => postgres.query<Record<string, unknown>>({ name: "", text }, values);
  await run("insert into accounts (account_id, name) select 'acc_' || n, 'bench' from generate_series(1, $1::int) n", [
    accounts,
  ]);
  await run(
    "insert into transfers (transfer_id, account_id, family, kind, amount, actor, idempotency_key) select 'tra_' || n, 'acc_' || n, 'v1', 'bonus', 1000000000000, 'bench', 'b' from generate_series(1, $1::int) n",
    [accounts],
  );
  await run(
    "insert into pools (account_id, family, posted) select 'acc_' || n, 'v1', 1000000000000 from generate_series(1, $1::int) n",
    [accounts],
  );
  await run(
    "insert into keys (key_id, account_id, family, name) select 'key_' || n, 'acc_' || n, 'v1', 'bench' from generate_series(1, $1::int) n",
    [accounts],
  );

  const price = priceVersion("bench", {
    input: 140n,
    output: 700n,
    cacheWrite5m: 175n,
    cacheWrite1h: 280n,
    cacheRead: 14n,
    thinking: 700n,
  });
  const billing = createBilling({ postgres, priceOf: () => price, log: createLog("silent"), onLost: () => {} });
  await billing.start();
  const { holds } = billing;
  const never = new AbortController().signal;
  const bounds = { input: 1_000, dearestInput: InputCategory.UNSPECIFIED, minOutput: 100, maxOutput: 100 };
  const usage = create(UsageSchema, { input: 100, output: 100 });
  const pair = async (payer: Payer) => {
    const hold = await holds.place(
      { requestId: newRequestId(), payer, model: "bench", price, bounds, deadlineMs: 60_000 },
      never,
    );
    await holds.settle(hold, { usage, outcome: Outcome.COMPLETED, basis: Basis.REPORTED, attempts: [] });
  };
  const payerOf = (n: number): Payer => ({ accountId: `acc_${n}`, family: "v1", keyId: `key_${n}` });
  const measure = async (accountOf: (pair: number) => number, width: number, count: number) => {
    let next = 0;
    const cpuBefore = cpuSeconds(process.pid);
    const started = performance.now();
    const worker = async () => {
      while (next < count) await pair(payerOf(accountOf(next++)));
    };
    await Promise.all(Array.from({ length: width }, worker));
    const seconds = (performance.now() - started) / 1000;
    return { perSecond: count / seconds, cpuMicros: ((cpuSeconds(process.pid) - cpuBefore) * 1e6) / count };
  };

  const spread: { perSecond: number; cpuMicros: number }[] = [];
  const hot: { perSecond: number; cpuMicros: number }[] = [];
  const alone: { perSecond: number }[] = [];
  await measure((n) => (n % accounts) + 1, concurrency, pairs / 2);
  for (let round = 0; round < rounds; round++) {
    spread.push(await measure((n) => ((n * 7919) % accounts) + 1, concurrency, pairs));
    hot.push(await measure(() => 1, concurrency, pairs));
    alone.push(await measure((n) => (n % accounts) + 1, 1, 300));
  }
  await billing.stop();
  const audit = await run(
    (await import("node:fs")).readFileSync(new URL("../../../src/billing/sql/audit.sql", import.meta.url), "utf8"),
  );
  await postgres.close();
  return {
    rows: [
      {
        measure: "hold + settle pairs per second, 10,000 accounts",
        value: spreadOf(spread.map((one) => one.perSecond)),
        unit: "/s",
        must: "≥ 10000",
      },
      {
        measure: "one hot account ÷ spread",
        value: spreadOf(hot.map((one, round) => one.perSecond / (spread[round]?.perSecond ?? 1))),
        must: "≥ 0.8",
      },
      {
        measure: "CPU of the gateway per pair",
        value: spreadOf(spread.map((one) => one.cpuMicros)),
        unit: "µs",
        must: "≤ 30 µs",
      },
      { measure: "one pair alone (two commits)", value: spreadOf(alone.map((one) => 1000 / one.perSecond)), unit: "ms" },
    ],
    faults: audit.map((row) => JSON.stringify(row)),
  };
}
