// Readers of chains, on chains in memory in this process: how long a payment waits behind dust of
// somebody else, how fast missed blocks are read behind a slow node, and how long a turn over many
// unsettled payments takes. Credits that differ from what was paid make the run void.

import { setTimeout as delay } from "node:timers/promises";
import { connectPostgres } from "../../../src/postgres/postgres.ts";
import { newHash } from "../../support/model-chains.ts";
import {
  credits,
  type ModelWorld,
  satoshi,
  startModelWorld,
  usd,
} from "../../support/model-world.ts";
import { Lab } from "../lab.ts";
import { spreadOf } from "../measure.ts";
import { type Result, type Row, single } from "../report.ts";

const pieces = 5_000;
const rounds = 3;
const floods = [
  { transactions: 1, blocks: 1 },
  { transactions: 50, blocks: 50 },
  { transactions: 5_000, blocks: 50 },
  { transactions: 5_000, blocks: 5_000 },
];
const names = ["one", "regtest"] as const;
const shownAs = { one: "EVM", regtest: "Bitcoin" };
const five = 5n * usd * credits;
const slowMs = 100;
const missedBlocks = 10_000;
const manyAddresses = 30_000;
const unsettled = { addresses: 20_000, ofEach: 5 };
const turns = 20;

export async function chains(): Promise<Result> {
  await using lab = new Lab();
  const url = await lab.emptyDatabase("chains");
  const postgres = connectPostgres(url);
  const world = await startModelWorld({ url, postgres, drop: () => postgres.close() });
  try {
    for (const name of names) await reads(world, name);
    const rows: Row[] = [];
    for (const flood of floods) rows.push(...(await measureFlood(world, flood)));
    rows.push(...(await measureMissed(world)), await measureTurns(world));
    const violations = await world.world.violations();
    return { rows, faults: violations.map(({ invariant }) => invariant) };
  } finally {
    await world.stop();
  }
}

/** Waits until a reading of a chain has begun and ended. */
async function reads({ world }: ModelWorld, name: string): Promise<void> {
  const [now] = await world.run<{ at: Date }>("select now() as at");
  const isRead = () =>
    world.run("select from chains where read_at > $1 and chain = $2", [now?.at, name]);
  while ((await isRead()).length === 0) await delay(10);
}

/** Milliseconds from the last block until each account has its credits. */
async function creditsMs({ world }: ModelWorld, accountIds: readonly string[]): Promise<number[]> {
  const start = performance.now();
  return Promise.all(
    accountIds.map(async (accountId) => {
      for (;;) {
        const [posted] = await world.posted(accountId);
        if (posted === five) return performance.now() - start;
        if (posted > five) throw new Error("more was credited than was paid");
        await delay(10);
      }
    }),
  );
}

/** Mines so many payments of one atom in each block to one address. */
function mineBlocks(
  { evm, bitcoin }: ModelWorld,
  to: readonly [string, string],
  { transactions, blocks }: (typeof floods)[number],
): void {
  for (let block = 0; block < blocks; block++) {
    const hashes = Array.from({ length: transactions / blocks }, newHash);
    const items = (address: string) =>
      Array.from({ length: pieces / blocks }, (_, piece) => {
        const tx = hashes[piece % hashes.length] ?? "";
        return { tx, spends: tx, to: address, atoms: 1n };
      });
    evm.chain.mine(items(to[0]));
    bitcoin.chain.mine(items(to[1]));
  }
}

/** In the same blocks, with payments to strangers and with dust to somebody else. */
async function measureFlood(on: ModelWorld, flood: (typeof floods)[number]): Promise<Row[]> {
  const { evm, bitcoin, payer } = on;
  const run = async (isDust: boolean) => {
    const [flooded, other] = [
      [await payer("one"), await payer("regtest")],
      [await payer("one"), await payer("regtest")],
    ];
    for (const name of names) await reads(on, name);
    const [one = "", regtest = ""] = flooded.map(({ address }) => address);
    mineBlocks(on, isDust ? [one, regtest] : [`0x${"9".repeat(40)}`, "elsewhere"], flood);
    const paid = { tx: newHash(), spends: newHash() };
    evm.chain.mine([{ ...paid, to: other[0]?.address ?? "", atoms: 5n * usd }]);
    bitcoin.chain.mine([{ ...paid, to: other[1]?.address ?? "", atoms: 5n * satoshi }]);
    for (let more = 0; more < 3; more++) for (const { chain } of [evm, bitcoin]) chain.mine([]);
    return creditsMs(
      on,
      other.map(({ accountId }) => accountId),
    );
  };
  const quiet: number[][] = [];
  const behind: number[][] = [];
  for (let round = 0; round < rounds; round++) {
    quiet.push(await run(false));
    behind.push(await run(true));
  }
  const of = (figures: number[][], at: number) => spreadOf(figures.map((each) => each[at] ?? 0));
  const where = `${flood.transactions} transactions in ${flood.blocks} blocks`;
  return names.flatMap((name, at) => [
    {
      measure: `${shownAs[name]}: credits behind dust in ${where}`,
      value: of(behind, at),
      unit: "ms",
    },
    {
      measure: `${shownAs[name]}: the same ÷ without dust`,
      value: single(of(behind, at).median / of(quiet, at).median),
      // Of 5,000 blocks that are read at once, each with dust has to be asked for.
      must: flood.blocks > 50 ? "" : "≤ 2",
    },
  ]);
}

async function measureMissed(on: ModelWorld): Promise<Row[]> {
  await on.world.run(
    `insert into deposit_addresses (key_id, index, address, account_id, "family")
     select 'many', n, '0x' || lpad(to_hex(n), 40, '0'), 'acc_many' || n, 'v1'
     from generate_series(1, $1::integer) n`,
    [manyAddresses],
  );
  const rows: Row[] = [];
  for (const name of names) {
    const { chain, manners } = name === "one" ? on.evm : on.bitcoin;
    const { accountId, address } = await on.payer(name);
    await reads(on, name);
    manners.delayMs = slowMs;
    const paid = { tx: newHash(), spends: newHash(), to: address };
    for (let block = 1; block < missedBlocks; block++) chain.mine([]);
    chain.mine([{ ...paid, atoms: 5n * (name === "one" ? usd : satoshi) }]);
    for (let more = 0; more < 3; more++) chain.mine([]);
    const [ms = 0] = await creditsMs(on, [accountId]);
    manners.delayMs = 0;
    rows.push({
      measure: `${shownAs[name]}: blocks/s, ${missedBlocks} missed, node of ${slowMs} ms`,
      value: single(missedBlocks / (ms / 1_000)),
      must: "≥ 100",
    });
  }
  return rows;
}

/** From one reading to the next one, while there is more to settle. */
async function measureTurns(on: ModelWorld): Promise<Row> {
  const { bitcoin, world } = on;
  const { chain, manners } = bitcoin;
  const { addresses, ofEach } = unsettled;
  for (let more = 0; more < 3; more++) chain.mine([]);
  await reads(on, "regtest");
  manners.isAway = true;
  await world.run(
    `insert into deposit_addresses (key_id, index, address, account_id, "family")
     select 'unsettled', n, 'bcrt' || n, 'acc_unsettled' || n, 'v1'
     from generate_series(1, $1::integer) n`,
    [addresses],
  );
  await world.run(
    `insert into payment_orders (order_id, account_id, "family", idempotency_key, kind, usd_micro,
       processor, method, asset, network, decimals, external_id, quoted_atoms, rate, created_by,
       quoted_until, watched_until, state)
     select 'ord_unsettled' || n, 'acc_unsettled' || n, 'v1', 'key', 'direct', 5000000, 'onchain',
       'onchain:btc-regtest', 'BTC', 'regtest', 8, 'regtest:ord_unsettled' || n, 5000000, 1000000,
       'bench', now() - interval '1 hour', now() + interval '7 days', 'seen'
     from generate_series(1, $1::integer) n`,
    [addresses],
  );
  await world.run(
    `insert into chain_payments (processor, external_id, chain, address, asset, decimals, atoms,
       state, height, hash, first_seen_at, market_rate, needed, order_id)
     select 'onchain', 'paper' || n || '.' || m, 'paper', 'bcrt' || n, 'BTC', 8, 4000, 'seen', $2,
       'h', now(), 50000000000, 1, 'ord_unsettled' || n
     from generate_series(1, $1::integer) n, generate_series(1, $3::integer) m`,
    [addresses, chain.tip - 1, ofEach],
  );
  // As a database does by itself within a minute.
  await world.run("analyze chain_payments, deposit_addresses, payment_orders");
  await world.run("update chain_payments set chain = 'regtest' where chain = 'paper'");
  await world.run("analyze chain_payments");
  manners.isAway = false;
  const begun = () =>
    bitcoin.calls.filter(({ body }) => Object(body).method === "getblockcount").length;
  const times: number[] = [];
  let [count, lastMs] = [begun(), performance.now()];
  while (times.length <= turns) {
    await delay(2);
    if (begun() === count) continue;
    count = begun();
    times.push(performance.now() - lastMs);
    lastMs = performance.now();
  }
  await world.run("update chain_payments set state = 'lost' where address like 'bcrt%'");
  return {
    measure: `settling turn over ${addresses * ofEach} unsettled payments`,
    value: spreadOf(times.slice(1)),
    unit: "ms",
    must: "≤ 1,000",
  };
}
