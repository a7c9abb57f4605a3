// Nodes that lie, fall behind or differ, and tokens that log oddly: credits are right all the same,
// never more than what was received, and no chain stands still once its node tells the truth.

import { afterAll, afterEach, beforeAll, expect, onTestFinished, test } from "vitest";
import { Attention } from "../../gen/gateway/payments/v1/order_pb.ts";
import * as sql from "../../gen/sql/payments.ts";
import { connectPostgres } from "../../src/postgres/postgres.ts";
import { type Lie, newHash } from "../support/model-chains.ts";
import { credits, type ModelWorld, satoshi, startModelWorld, usd } from "../support/model-world.ts";
import { admin, type PaymentsNode } from "../support/payments-nodes.ts";

let on: ModelWorld;
let node: PaymentsNode;
beforeAll(async () => {
  on = await startModelWorld();
  node = on.world;
  await on.reads("one");
  await on.reads("regtest");
});
afterEach(() => {
  for (const { manners } of [on.evm, on.bitcoin])
    Object.assign(manners, { delayMs: 0, isAway: false, isSilent: false, lie: undefined });
});
afterAll(() => on.stop());

const five = 5n * usd * credits;
const posted = (accountId: string) =>
  expect.poll(() => on.world.posted(accountId), { timeout: 45_000 });
const transfer = (to: string, atoms = 5n * usd) => ({ tx: newHash(), to, atoms });
function mineEvm(...items: { tx: string; to: string; atoms: bigint; from?: string }[]): void {
  on.evm.chain.mine(items);
  for (let more = 0; more < 3; more++) on.evm.chain.mine([]);
}
/** Does something while no node runs. */
async function whileAway(work: () => Promise<void>): Promise<void> {
  await node.payments.stop();
  await work();
  node = on.world.node();
  node.payments.start();
}
/** Waits until a reading has failed. */
async function failed(chain: string): Promise<void> {
  await expect
    .poll(() => on.world.run("select from chains where chain = $1 and failures > 0", [chain]), {
      interval: 5,
    })
    .toHaveLength(1);
}
type Log = Record<string, unknown>;
const logsOf = (lie: (logs: Log[]) => unknown): Lie => {
  return ({ method }, answered) =>
    method === "eth_getLogs" && Array.isArray(answered) ? lie(answered) : undefined;
};
const also = (of: (log: Log) => Log) =>
  logsOf((logs) => [...logs, ...logs.map((log) => ({ ...log, logIndex: "0x99", ...of(log) }))]);
const changed = (of: Log) => logsOf((logs) => logs.map((log) => ({ ...log, ...of })));

test.each<[string, Lie]>([
  ["twice", logsOf((logs) => [...logs, ...logs])],
  ["in another order", logsOf((logs) => logs.toReversed())],
  ["with those of blocks that the chain left", also(() => ({ removed: true }))],
  ["with 31 bytes of data", also(() => ({ data: `0x${"00".repeat(30)}05` }))],
  ["without data", also(() => ({ data: "0x" }))],
  ["with a topic too many", also(({ topics }) => ({ topics: [Object(topics), "0x1"].flat() }))],
  [
    "with transfers from an address to itself",
    also(({ topics }) => {
      const [topic, , receiver] = Object(topics);
      return { topics: [topic, receiver, receiver] };
    }),
  ],
])("logs that come %s: each transfer counts once, and at once", async (_, lie) => {
  const [one, other] = [await on.payer("one"), await on.payer("one")];
  on.evm.manners.lie = lie;
  mineEvm(transfer(one.address), transfer(other.address), transfer(one.address, usd));
  await posted(other.accountId).toEqual([five, 0n]);
  await posted(one.accountId).toEqual([five + usd * credits, 0n]);
});

test.each<[string, Lie]>([
  ["with a wrong hash of their block", changed({ blockHash: `0x${"9".repeat(64)}` })],
  ["of blocks that nobody asked for", changed({ blockNumber: "0x1" })],
  ["of another contract", changed({ address: `0x${"22".repeat(20)}` })],
  ["of other addresses", changed({ topics: [1, 2, 3].map(() => `0x${"3".repeat(64)}`) })],
  ["without topics", changed({ topics: [] })],
  ["with a place that is no number", changed({ logIndex: "many" })],
  ["as no list", ({ method }) => (method === "eth_getLogs" ? { logs: [] } : undefined)],
  [
    "of a block that it has not",
    ({ method, params }) =>
      method === "eth_getBlockByNumber" && params[0] !== "latest" ? null : undefined,
  ],
])("logs %s: nothing counts before the node tells the truth, then all", async (_, lie) => {
  const { accountId, address } = await on.payer("one");
  on.evm.manners.lie = lie;
  mineEvm(transfer(address));
  await failed("one");
  expect(await on.world.posted(accountId)).toEqual([0n, 0n]);
  on.evm.manners.lie = undefined;
  await posted(accountId).toEqual([five, 0n]);
});

test("what the operator moves from one of our addresses to another is no payment", async () => {
  const [one, other] = [await on.payer("one"), await on.payer("one")];
  mineEvm({ ...transfer(other.address), from: one.address }, transfer(other.address, 2n * usd));
  await posted(other.accountId).toEqual([2n * usd * credits, 0n]);
});

test("an amount of 2^255 asks a person, and keeps nobody else waiting", async () => {
  const [one, other] = [await on.payer("one"), await on.payer("one")];
  mineEvm(transfer(one.address, 2n ** 255n), transfer(other.address));
  await posted(other.accountId).toEqual([five, 0n]);
  await expect
    .poll(async () => (await on.world.as(admin).listAttention({})).orders)
    .toMatchObject([{ accountId: one.accountId, attention: Attention.OVERPAID }]);
  await posted(one.accountId).toEqual([2_000_000n * usd * credits, 0n]);
  const [order] = (await on.world.as(admin).listAttention({})).orders;
  await on.world.as(admin).decideOrder({
    ...{ orderId: order?.orderId ?? "", reason: "nobody has so much" },
    choice: { case: "close", value: {} },
  });
});

test("a node that goes back 150 blocks says nothing of the chain, and one that comes back goes on", async () => {
  const [one, other] = [await on.payer("one"), await on.payer("one")];
  mineEvm(transfer(one.address));
  for (let more = 0; more < 150; more++) on.evm.chain.mine([]);
  await posted(one.accountId).toEqual([five, 0n]);
  await on.reads("one");
  const ahead = on.evm.chain.blocks.splice(-150);
  await failed("one");
  expect(await on.world.posted(one.accountId)).toEqual([five, 0n]);
  on.evm.chain.blocks.push(...ahead);
  mineEvm(transfer(other.address));
  await posted(other.accountId).toEqual([five, 0n]);
  expect(await on.world.transfers(one.accountId)).toHaveLength(1);
});

test("a chain that leaves 150 blocks: what stood in them is charged back, and counts again", async () => {
  const { accountId, address } = await on.payer("one");
  mineEvm(transfer(address));
  for (let more = 0; more < 146; more++) {
    on.evm.chain.mine([]);
    if (more % 20 === 0) await on.reads("one");
  }
  await posted(accountId).toEqual([five, 0n]);
  const left = on.evm.chain.leave(150).flat();
  for (let more = 0; more < 160; more++) on.evm.chain.mine([]);
  await posted(accountId).toEqual([0n, 0n]);
  mineEvm(...left.filter(({ to }) => to === address));
  await posted(accountId).toEqual([five, 0n]);
  const { orders } = await on.world.as(admin).listAttention({});
  expect(orders).toMatchObject([{ accountId, attention: Attention.LOST }]);
});

test("dust in a block that is read again, since the chain left later ones, counts once", async () => {
  const { accountId, address } = await on.payer("one");
  const piece = () => transfer(address, (6n * usd) / 10n);
  // One chunk of blocks, whose end alone is remembered.
  await whileAway(async () => {
    on.evm.chain.mine([piece()]);
    mineEvm(piece());
    mineEvm();
  });
  const twelve = (12n * usd * credits) / 10n;
  await posted(accountId).toEqual([twelve, 0n]);
  on.evm.chain.leave(4);
  for (let more = 0; more < 8; more++) on.evm.chain.mine([]);
  await on.reads("one");
  mineEvm(piece());
  await on.reads("one");
  expect(await on.world.posted(accountId)).toEqual([twelve, 0n]);
  mineEvm(piece());
  await posted(accountId).toEqual([2n * twelve, 0n]);
});

test.each(["one", "regtest"])(
  "a reorganisation of chain %s while a page settles: what is mined again counts once",
  async (name) => {
    const { accountId, address } = await on.payer(name);
    const isEvm = name === "one";
    const { chain, manners } = isEvm ? on.evm : on.bitcoin;
    const paid = { ...transfer(address, 5n * (isEvm ? usd : satoshi)), spends: newHash() };
    await on.world.run("create table settled (address text)");
    await onSettling("insert into settled values (new.address);");
    onTestFinished(async () => {
      await on.world.run("drop table settled");
    });
    const from = chain.tip;
    const left = Promise.withResolvers<void>();
    // The chain leaves the block once it was read, before the page settles.
    manners.lie = ({ method, params: [filter] }) => {
      const isLast = isEvm ? Number(Object(filter).toBlock) === from + 4 : method === "getblock";
      if (!isLast || chain.tip < from + 4) return undefined;
      manners.lie = undefined;
      queueMicrotask(() => {
        chain.leave(4);
        for (let more = 0; more < 8; more++) chain.mine([]);
        left.resolve();
      });
      return undefined;
    };
    chain.mine([paid]);
    for (let more = 0; more < 3; more++) chain.mine([]);
    await left.promise;
    await on.reads(name);
    expect(await on.world.run("select from settled where address = $1", [address])).toHaveLength(1);
    chain.mine([paid]);
    for (let more = 0; more < 3; more++) chain.mine([]);
    await on.reads(name);
    await posted(accountId).toEqual([five, 0n]);
    expect(
      await on.world.run("select from chain_payments where address = $1 and state = 'settled'", [
        address,
      ]),
    ).toHaveLength(1);
  },
);

test.each(["one", "regtest"])(
  "a node of chain %s that accepts calls and never answers, and then answers late: all counts",
  async (name) => {
    const { accountId, address } = await on.payer(name);
    const isEvm = name === "one";
    const { chain, manners } = isEvm ? on.evm : on.bitcoin;
    manners.isSilent = true;
    const paid = { ...transfer(address, 5n * (isEvm ? usd : satoshi)), spends: newHash() };
    chain.mine([paid]);
    for (let more = 0; more < 3; more++) chain.mine([]);
    await failed(name);
    expect(await on.world.posted(accountId)).toEqual([0n, 0n]);
    Object.assign(manners, { isSilent: false, delayMs: 300 });
    await posted(accountId).toEqual([five, 0n]);
  },
);

test.each(["one", "regtest"])(
  "chain %s leaves more blocks than are remembered: it is not believed, and charges nothing back",
  async (name) => {
    const { accountId, address } = await on.payer(name);
    const isEvm = name === "one";
    const { chain } = isEvm ? on.evm : on.bitcoin;
    const paid = () => ({ ...transfer(address, 5n * (isEvm ? usd : satoshi)), spends: newHash() });
    chain.mine([paid()]);
    for (let more = 0; more < 3; more++) chain.mine([]);
    await posted(accountId).toEqual([five, 0n]);
    const from = chain.tip;
    for (let more = 0; more < 210; more++) chain.mine([]);
    await on.reads(name);
    await on.world.run("delete from chain_blocks where chain = $1 and height <= $2", [name, from]);
    const others = chain.blocks.splice(-220);
    for (let more = 0; more < 230; more++) chain.mine([]);
    await failed(name);
    expect(await on.world.posted(accountId)).toEqual([five, 0n]);
    // Another node has the chain that was read.
    chain.blocks.splice(-230);
    chain.blocks.push(...others);
    chain.mine([paid()]);
    for (let more = 0; more < 3; more++) chain.mine([]);
    await posted(accountId).toEqual([2n * five, 0n]);
  },
);

/** Does this in the database before each payment that settles, until the end of the test. */
async function onSettling(work: string): Promise<void> {
  await on.world.run(
    `create function on_settling() returns trigger language plpgsql as
       $$ begin ${work} return new; end $$`,
  );
  await on.world.run(
    `create trigger on_settling before update on chain_payments
       for each row when (new.state = 'settled') execute function on_settling()`,
  );
  onTestFinished(async () => {
    await on.world.run("drop function on_settling cascade");
  });
}

test("a statement that hangs while a page settles keeps a chain for seconds, not for a minute", async () => {
  const { accountId, address } = await on.payer("regtest");
  await on.world.run("create sequence hangs");
  await onSettling("if nextval('hangs') <= 2 then perform pg_sleep(60); end if;");
  on.bitcoin.chain.mine([{ ...transfer(address, 5n * satoshi), spends: newHash() }]);
  await posted(accountId).toEqual([five, 0n]);
});

test("two nodes behind one address that differ in their newest blocks credit once", async () => {
  const { accountId, address } = await on.payer("one");
  let answers = 0;
  // Each second answer is of a node with other newest blocks.
  on.evm.manners.lie = ({ method }, answered) =>
    method === "eth_getBlockByNumber" &&
    answered &&
    Number(Object(answered).number) > on.evm.chain.tip - 2
      ? {
          ...Object(answered),
          hash: answers++ % 2 === 0 ? Object(answered).hash : `0x${newHash()}`,
        }
      : undefined;
  mineEvm(transfer(address));
  await posted(accountId).toEqual([five, 0n]);
  on.evm.manners.lie = undefined;
  await on.reads("one");
  expect(await on.world.transfers(accountId)).toHaveLength(1);
});

test("a node that answers for few blocks alone: chunks are halved, and then grow again", async () => {
  const { accountId, address } = await on.payer("one");
  const least: number[] = [];
  on.evm.manners.lie = ({ method, params: [filter] }) => {
    if (method !== "eth_getLogs") return undefined;
    const { fromBlock, toBlock } = Object(filter);
    const blocks = Number(toBlock) - Number(fromBlock) + 1;
    if (blocks > 3) throw new Error("too many blocks");
    least.push(blocks);
    return undefined;
  };
  on.evm.chain.mine([transfer(address)]);
  for (let more = 0; more < 40; more++) on.evm.chain.mine([]);
  await posted(accountId).toEqual([five, 0n]);
  on.evm.manners.lie = undefined;
  for (let more = 0; more < 40; more++) on.evm.chain.mine([]);
  await on.reads("one");
  expect(Math.max(...least)).toBeLessThanOrEqual(3);
  const [chain] = await on.world.run("select unread_block from chains where chain = 'one'");
  expect(chain).toEqual({ unread_block: null });
});

test("one block that cannot be read is named, and the next answer ends that", async () => {
  const { accountId, address } = await on.payer("one");
  const height = on.evm.chain.tip + 20;
  on.evm.manners.lie = ({ method, params: [filter] }) => {
    const { fromBlock, toBlock } = Object(filter);
    if (method === "eth_getLogs" && Number(fromBlock) <= height && height <= Number(toBlock))
      throw new Error("not this one");
    return undefined;
  };
  for (let more = 1; more < 20; more++) on.evm.chain.mine([]);
  mineEvm(transfer(address));
  const unread = () => on.world.run("select unread_block from chains where chain = 'one'");
  await expect.poll(unread, { timeout: 60_000 }).toEqual([{ unread_block: BigInt(height) }]);
  on.evm.manners.lie = undefined;
  await posted(accountId).toEqual([five, 0n]);
  await expect.poll(unread).toEqual([{ unread_block: null }]);
});

test.each<[string, Lie]>([
  ["another block", ({ method }) => (method === "getblock" ? { hash: "other" } : undefined)],
  ["a block without transactions", blockWith({ tx: [] })],
  ["a block that follows another one", blockWith({ previousblockhash: newHash() })],
  ["no height", ({ method }) => (method === "getblockcount" ? "high" : undefined)],
])("a node of Bitcoin that answers with %s is not believed", async (_, lie) => {
  const { accountId, address } = await on.payer("regtest");
  on.bitcoin.manners.lie = lie;
  on.bitcoin.chain.mine([{ ...transfer(address, 5n * satoshi), spends: newHash() }]);
  await failed("regtest");
  on.bitcoin.manners.lie = undefined;
  await posted(accountId).toEqual([five, 0n]);
});

function blockWith(of: object): Lie {
  return ({ method }, answered) =>
    method === "getblock" ? { ...Object(answered), ...of } : undefined;
}

test("of an address with over 100 payments others come first, and a person looks once", async () => {
  const [one, other] = [await on.payer("regtest"), await on.payer("regtest")];
  const paid = (to: string) => ({ ...transfer(to, 2n * satoshi), spends: newHash() });
  await whileAway(async () => {
    on.bitcoin.chain.mine(Array.from({ length: 150 }, () => paid(one.address)));
    on.bitcoin.chain.mine([paid(other.address)]);
    // 300 USD of a day need 3 blocks.
    for (let more = 0; more < 3; more++) on.bitcoin.chain.mine([]);
  });
  await posted(other.accountId).toEqual([2n * usd * credits, 0n]);
  await posted(one.accountId).toEqual([300n * usd * credits, 0n]);
  const flooded = await on.world.run(
    "select account_id from payment_orders where 'flooded' = any(faults)",
  );
  expect(flooded).toEqual([{ account_id: one.accountId }]);
});

test("a page settles 20 payments of an address, and those of a flooded one last", async () => {
  const [one, other] = [await on.payer("regtest"), await on.payer("regtest")];
  const postgres = connectPostgres(on.world.url);
  onTestFinished(() => postgres.close());
  // In a chain that nobody reads.
  await on.world.run(
    `insert into chain_payments (processor, external_id, chain, address, asset, decimals, atoms,
       state, height, hash, first_seen_at, needed)
     select 'onchain', a || n, 'paper', a, 'BTC', 8, 5000, 'seen', n, 'h', now(), 1
     from generate_series(1, 30) n, unnest($1::text[]) a`,
    [[one.address, other.address]],
  );
  const settle = async () => {
    const settled = await postgres.run(sql.settlePayments, {
      ...{ processor: "onchain", chain: "paper", rows: 25, height: 100, needed: [1, 1] },
      ...{ addresses: [one.address, other.address], flooded: [true, false] },
    });
    const of = (address: string) =>
      settled.filter(({ externalId }) => externalId.startsWith(address)).length;
    return [of(one.address), of(other.address)];
  };
  expect([await settle(), await settle(), await settle(), await settle()]).toEqual([
    [5, 20],
    [15, 10],
    [10, 0],
    [0, 0],
  ]);
});

test("what came while the gateway was away for an hour counts at the rates of then", async () => {
  const { accountId, address } = await on.payer("regtest");
  await whileAway(async () => {
    await on.world.run("delete from rate_samples");
    await on.world.run(
      `insert into rate_samples (asset, at, rate)
       values ('BTC', date_trunc('minute', now() - interval '50 minutes'), 25000000000)`,
    );
    on.bitcoin.chain.mine([{ ...transfer(address, 10n * satoshi), spends: newHash() }], 3_000);
  });
  // A coin was worth half as much.
  await posted(accountId).toEqual([five, 0n]);
  const { orders } = await on.world.as(admin).listOrders({ accountId });
  expect(orders.map(({ attention }) => attention)).toEqual(orders.map(() => Attention.NONE));
});

test("in the end the ledger and the orders agree", async () => {
  await expect
    .poll(() => on.world.run("select from payment_grants where transfer_id is null"))
    .toEqual([]);
  expect(await on.world.violations()).toEqual([]);
});
