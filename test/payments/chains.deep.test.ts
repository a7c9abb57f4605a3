// Chains in memory: whatever they do, credits are the value of what stands in them; and nobody's
// payments wait for those of somebody else.

import fc from "fast-check";
import { afterEach, expect, test } from "vitest";
import { Family } from "../../gen/gateway/common/v1/family_pb.ts";
import { newHash, type Payment, type Transfer } from "../support/model-chains.ts";
import { credits, satoshi, startModelWorld, usd } from "../support/model-world.ts";
import { admin, type PaymentsNode } from "../support/payments-nodes.ts";

const stops: (() => Promise<void>)[] = [];
afterEach(async () => {
  for (const stop of stops.splice(0).reverse()) await stop();
});

async function start() {
  const world = await startModelWorld();
  stops.push(world.stop);
  return world;
}

/** What stands in some blocks for an address, in units of a dollar's atoms, by the rules. */
function worthOf(
  blocks: readonly { items: readonly Transfer[] }[],
  address: string,
  one: bigint,
  isSummed: boolean,
): bigint {
  let [worth, dust] = [0n, 0n];
  for (const { items } of blocks) {
    const ours = items.filter(({ to }) => to === address).map(({ atoms }) => atoms);
    const sums = isSummed ? [ours.reduce((sum, atoms) => sum + atoms, 0n)] : ours;
    for (const atoms of sums)
      if (atoms >= one) worth += atoms;
      else dust += atoms;
    if (dust >= one) {
      worth += dust;
      dust = 0n;
    }
  }
  return worth;
}

const step = fc.record({
  /** In tenths of a dollar, to one of two addresses. */
  payments: fc.array(
    fc.record({ tenths: fc.integer({ min: 1, max: 40 }), who: fc.constantFrom(0, 1) }),
    { maxLength: 4 },
  ),
  blocks: fc.integer({ min: 1, max: 4 }),
  /** Blocks that the chain leaves before, and what becomes of their payments. */
  left: fc.oneof(fc.constant(0), fc.integer({ min: 1, max: 8 })),
  fate: fc.constantFrom("again", "other", "gone"),
  after: fc.constantFrom("read", "go on", "away", "another node"),
});

test("credits are the value of what stands in a chain, whatever it and the nodes do", async () => {
  const { evm, bitcoin, world, reads, payer } = await start();
  await reads("one");
  await reads("regtest");
  let node: PaymentsNode = world;
  await fc.assert(
    fc.asyncProperty(fc.array(step, { minLength: 3, maxLength: 8 }), async (steps) => {
      const tokens = [await payer("one"), await payer("one")];
      const coins = [await payer("regtest"), await payer("regtest")];
      const [evmFrom, bitcoinFrom] = [evm.chain.tip, bitcoin.chain.tip];
      for (const { payments, blocks, left, fate, after } of steps) {
        const room = Math.min(left, evm.chain.tip - evmFrom);
        // The same transactions in other blocks, with other amounts, or in none.
        const leftTransfers = evm.chain.leave(room).flat();
        const again: Transfer[] =
          fate === "gone"
            ? []
            : leftTransfers.map((one) =>
                fate === "again" ? one : { ...one, atoms: one.atoms + 5n * usd },
              );
        evm.chain.mine([
          ...again,
          ...payments.map(({ tenths, who }) => ({
            tx: newHash(),
            to: tokens[who]?.address ?? "",
            atoms: (BigInt(tenths) * usd) / 10n,
          })),
        ]);
        // A chain leaves blocks only for a longer one. A shorter one is a node that is behind.
        for (let more = 1; more < room + blocks; more++) evm.chain.mine([]);

        const bitcoinRoom = Math.min(left, bitcoin.chain.tip - bitcoinFrom);
        const leftPayments = bitcoin.chain.leave(bitcoinRoom).flat();
        // Mined again, or their money is spent elsewhere.
        const next: Payment[] = leftPayments.map((one) =>
          fate === "again" ? one : { ...one, tx: newHash(), to: "elsewhere" },
        );
        bitcoin.chain.mine([
          ...next,
          ...payments.map(({ tenths, who }) => ({
            tx: newHash(),
            spends: newHash(),
            to: coins[who]?.address ?? "",
            atoms: (BigInt(tenths) * satoshi) / 10n,
          })),
        ]);
        for (let more = 1; more < bitcoinRoom + blocks; more++) bitcoin.chain.mine([]);

        evm.manners.isAway = bitcoin.manners.isAway = after === "away";
        if (after === "read") await Promise.all([reads("one"), reads("regtest")]);
        if (after === "another node") {
          await node.payments.stop();
          node = world.node();
          node.payments.start();
        }
      }
      evm.manners.isAway = bitcoin.manners.isAway = false;
      for (let more = 0; more < 9; more++) {
        evm.chain.mine([]);
        bitcoin.chain.mine([]);
      }
      await Promise.all([reads("one"), reads("regtest")]);
      for (const [payers, model, one, isSummed] of [
        [tokens, evm.chain.blocks.slice(evmFrom + 1), usd, true],
        [coins, bitcoin.chain.blocks.slice(bitcoinFrom + 1), satoshi, false],
      ] as const)
        for (const { accountId, address } of payers) {
          const micro = (worthOf(model, address, one, isSummed) * usd * credits) / one;
          // The order of a look that a stop cut off has its lease for 30 seconds more.
          await expect
            .poll(() => world.posted(accountId), { timeout: 45_000 })
            .toEqual([micro, 0n]);
        }
    }),
    { numRuns: 12, endOnFailure: true },
  );
  expect(await world.violations()).toEqual([]);
}, 600_000);

test("5,000 pieces of dust at one address ask nobody, and keep nobody else waiting", async () => {
  const { evm, bitcoin, world, reads, payer } = await start();
  await reads("one");
  await reads("regtest");
  const flooded = [await payer("one"), await payer("regtest")];
  const other = [await payer("one"), await payer("regtest")];
  /** Pays dust in so many transactions and blocks, then 5 USD to somebody else. */
  const run = async (pieces: number, transactions: number) => {
    for (const [at, { chain }, blocksMax] of [
      [0, evm, 5_000],
      [1, bitcoin, 50],
    ] as const) {
      const blocks = Math.min(blocksMax, transactions);
      for (let block = 0; block < blocks; block++) {
        const hashes = Array.from({ length: transactions / blocks }, newHash);
        chain.mine(
          Array.from({ length: pieces / blocks }, (_, piece) => ({
            ...{ tx: hashes[piece % hashes.length] ?? "", spends: newHash() },
            ...{ to: flooded[at]?.address ?? "", atoms: 1n },
          })),
        );
      }
    }
    const paid = { tx: newHash(), spends: newHash() };
    evm.chain.mine([{ ...paid, to: other[0]?.address ?? "", atoms: 5n * usd }]);
    bitcoin.chain.mine([{ ...paid, to: other[1]?.address ?? "", atoms: 5n * satoshi }]);
    for (let more = 0; more < 3; more++) {
      evm.chain.mine([]);
      bitcoin.chain.mine([]);
    }
  };
  for (const [runs, transactions] of [1, 50, 5_000].entries()) {
    await run(5_000, transactions);
    for (const { accountId } of other)
      await expect
        .poll(() => world.posted(accountId), { timeout: 45_000 })
        .toEqual([BigInt(runs + 1) * 5n * usd * credits, 0n]);
  }
  const rows = await world.run<{ payments: bigint }>(
    "select count(*) as payments from chain_payments where address = any($1)",
    [flooded.map(({ address }) => address)],
  );
  // 15,000 satoshi are 7.50 USD, and became payments of 1 USD; as many atoms of a dollar are not.
  expect(rows[0]?.payments).toBeLessThanOrEqual(7n);
  const { orders } = await world.as(admin).listAttention({});
  expect(orders).toEqual([]);
}, 300_000);

test("a mempool of 200,000 transactions is read in pieces, the new first, and only while an order waits", async () => {
  const { bitcoin, world, reads, payer } = await start();
  const { accountId, address } = await payer("regtest");
  // The order that gave the address was awaited for a moment: a reading of then is over.
  await reads("regtest");
  const add = (to: string, atoms: bigint) => {
    const tx = newHash();
    bitcoin.pool.set(tx, { tx, to, atoms, spends: newHash() });
    return tx;
  };
  const asked = () => {
    const calls = bitcoin.calls.flatMap(({ body }) => body).map(Object);
    return calls
      .filter(({ method }) => method === "getrawtransaction")
      .map(({ params }) => params[0]);
  };
  for (let count = 0; count < 200_000; count++) add("elsewhere", 1n);
  await reads("regtest");
  expect(asked()).toEqual([]);
  const { order } = await world.as(admin).createOrder({
    accountId,
    family: Family.V1,
    packMicrodollars: 5_000_000n,
    method: "onchain:btc-regtest",
    idempotencyKey: "key",
  });
  const orderId = order?.orderId ?? "";
  await expect.poll(() => asked().length, { interval: 5 }).toBeGreaterThan(0);
  const paid = add(address, 5n * satoshi);
  await world.orderWhen(orderId, ({ deposits }) => deposits.length === 1);
  // The reading that was under way, and the next one.
  expect(asked().indexOf(paid)).toBeLessThanOrEqual(4_000);
  expect(new Set(asked()).size).toBe(asked().length);
}, 120_000);

test("with 30,000 addresses and a slow node, 10,000 blocks are read, and the cursor moves", async () => {
  const { evm, world, reads, payer } = await start();
  await reads("one");
  const { accountId, address } = await payer("one");
  await world.run(
    `insert into deposit_addresses (key_id, index, address, account_id, "family")
       select 'many', n, '0x' || lpad(to_hex(n), 40, '0'), 'acc_many' || n, 'v1'
       from generate_series(1, 30000) n`,
  );
  evm.manners.delayMs = 100;
  for (let height = 0; height < 10_000; height++)
    evm.chain.mine(height === 5_000 ? [{ tx: newHash(), to: address, atoms: 5n * usd }] : []);
  const heights = new Set<bigint>();
  await expect
    .poll(
      async () => {
        const [row] = await world.run<{ height: bigint }>(
          "select height from chains where chain = 'one'",
        );
        heights.add(row?.height ?? 0n);
        return row?.height;
      },
      { interval: 20, timeout: 120_000 },
    )
    .toBe(BigInt(evm.chain.tip - 2));
  expect(heights.size).toBeGreaterThan(10);
  evm.manners.delayMs = 0;
  await expect
    .poll(() => world.posted(accountId), { timeout: 45_000 })
    .toEqual([5n * usd * credits, 0n]);
}, 300_000);
