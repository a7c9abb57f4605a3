// Bitcoin, by a real node: seen, confirmed, replaced, left by the chain, and paid again.

import { p2wpkh, SigHash, Transaction } from "@scure/btc-signer";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { Family } from "../../gen/gateway/common/v1/family_pb.ts";
import { Attention, type Order, OrderState } from "../../gen/gateway/payments/v1/order_pb.ts";
import { blocksNeeded } from "../../src/payments/bitcoin.ts";
import { connectPostgres } from "../../src/postgres/postgres.ts";
import { type Btcd, btcdBinary, startBtcd } from "../support/chain-node.ts";
import { alertsOn, mailerOf } from "../support/notices.ts";
import {
  onchainSettings,
  regtestAccountKey,
  startFront,
  startRates,
  testKey,
} from "../support/onchain.ts";
import { admin, type PaymentsNodes, startPaymentsNodes } from "../support/payments-nodes.ts";
import { startSmtpServer } from "../support/smtp.ts";

const pack = 1_000_000_000n;
const network = { bech32: "bcrt", pubKeyHash: 0x6f, scriptHash: 0xc4, wif: 0xef };

test.each([
  [0n, 1],
  [99_999_999n, 1],
  [100_000_000n, 3],
  [999_999_999n, 3],
  [1_000_000_000n, 6],
  [undefined, 6],
])("%s micro-dollars within a day need %i blocks", (usdMicro, blocks) => {
  expect(blocksNeeded(usdMicro)).toBe(blocks);
});

describe.skipIf(btcdBinary === undefined)("with btcd", () => {
  const miner = testKey("m/84'/1'/9'/0/0", "tpub");
  const payment = p2wpkh(miner.publicKey ?? new Uint8Array(), network);
  let node: Btcd;
  let front: Awaited<ReturnType<typeof startFront>>;
  let rates: Awaited<ReturnType<typeof startRates>>;
  let world: PaymentsNodes;
  /** Outputs that can be spent. */
  const coins: { txid: string; index: number; amount: bigint }[] = [];

  beforeAll(async () => {
    node = await startBtcd(payment.address ?? "");
    await node.call("generate", 110);
    for (let height = 1; height <= 10; height++) {
      const hash = await node.call("getblockhash", height);
      const [coinbase] = Object(await node.call("getblock", hash, 2)).rawtx;
      coins.push({ txid: coinbase.txid, index: 0, amount: 5_000_000_000n });
    }
    front = await startFront(node.url);
    rates = await startRates({ BTC: 50_000 });
    world = await startPaymentsNodes({
      isReal: true,
      settings: onchainSettings(
        {
          bitcoin: {
            chain: "regtest",
            rpcEnv: "BITCOIN_RPC",
            leastUsd: 5,
            accountKey: regtestAccountKey,
            gapLimit: 1_000,
          },
        },
        rates.sources,
      ),
      env: { BITCOIN_RPC: front.url },
    });
  });
  afterAll(async () => {
    await world?.stop();
    await front?.stop();
    await node?.stop();
    await rates?.stop();
  });

  let keys = 0;
  async function orderPack(accountId: string, cents = 500) {
    const { order } = await world.as(admin).createOrder({
      accountId,
      family: Family.V1,
      packMicrodollars: BigInt(cents) * 10_000n,
      method: "onchain:btc-regtest",
      idempotencyKey: `key_${++keys}`,
    });
    if (!order) throw new Error("the answer has no order");
    return order;
  }
  const orderThat = (orderId: string, isSo: (order: Order) => boolean) =>
    world.orderWhen(orderId, isSo);
  const isPaid = ({ state }: Order) => state === OrderState.PAID;
  const isSeen = ({ state }: Order) => state === OrderState.SEEN;
  const balance = (accountId: string) => expect.poll(() => world.posted(accountId));
  const generate = (blocks: number) => node.call("generate", blocks);
  const tip = async () => String(await node.call("getbestblockhash"));

  function takeCoin() {
    const coin = coins.shift();
    if (!coin) throw new Error("there is no coin left");
    return coin;
  }
  /** A signed transaction. What is left after the fee goes back to the miner. */
  function signed(coin: ReturnType<typeof takeCoin>, to: string, satoshi: bigint, fee = 1_000n) {
    const transaction = new Transaction();
    transaction.addInput({
      txid: coin.txid,
      index: coin.index,
      sequence: 0xffff_fffd,
      witnessUtxo: { script: payment.script, amount: coin.amount },
      sighashType: SigHash.ALL,
    });
    transaction.addOutputAddress(to, satoshi, network);
    const rest = coin.amount - satoshi - fee;
    transaction.addOutputAddress(payment.address ?? "", rest, network);
    transaction.sign(miner.privateKey ?? new Uint8Array());
    transaction.finalize();
    return { hex: transaction.hex, id: transaction.id, rest };
  }
  async function pay(to: string, satoshi: bigint): Promise<string> {
    const coin = takeCoin();
    const { hex, id, rest } = signed(coin, to, satoshi);
    await node.call("sendrawtransaction", hex);
    coins.push({ txid: id, index: 1, amount: rest });
    return hex;
  }

  test("seen before it is in a block, then credited once", async () => {
    const accountId = await world.newAccount();
    const { orderId, payTo, quotedCoins: quotedAmount } = await orderPack(accountId);
    expect([payTo, quotedAmount]).toEqual([expect.stringMatching(/^bcrt1q/), "0.0001"]);
    await pay(payTo, 10_000n);
    const seen = await orderThat(orderId, isSeen);
    expect(seen.deposits).toMatchObject([{ confirmations: 0, confirmationsNeeded: 1 }]);
    await generate(1);
    const paid = await orderThat(orderId, isPaid);
    expect(paid.deposits).toMatchObject([{ coins: "0.0001", network: "regtest" }]);
    await balance(accountId).toEqual([pack, 0n]);
    await generate(3);
    expect(await world.transfers(accountId)).toHaveLength(1);
  });

  test("coins that settle are mailed with their receipt within ten seconds", async () => {
    const smtp = await startSmtpServer();
    const postgres = connectPostgres(world.url);
    const alerts = alertsOn(postgres, world.payments, { mailer: mailerOf(smtp) });
    try {
      const accountId = await world.newAccount();
      await world.run(
        "insert into people (person_id, login, email, email_verified_at) values ($1, $1, $2, now())",
        ["per_buyer", "buyer@example.com"],
      );
      await world.run(
        "insert into members (account_id, person_id, role) values ($1, $2, 'owner')",
        [...[accountId, "per_buyer"]],
      );
      alerts.start();
      const { orderId, payTo } = await orderPack(accountId);
      const hex = await pay(payTo, 10_000n);
      await orderThat(orderId, isSeen);
      await generate(1);
      await expect.poll(() => smtp.mails.length, { timeout: 60_000, interval: 50 }).toBe(1);
      const arrivedAt = Date.now();
      const [mail] = smtp.mails;
      expect(mail?.text).toContain("Total: 1000 credits, 5.00 USD");
      expect(mail?.text).toContain(Transaction.fromRaw(Buffer.from(hex, "hex")).id);
      const [row] = await world.run<{ settled_at: Date }>(
        "select settled_at from payment_deposits where order_id = $1",
        [orderId],
      );
      const tookMs = arrivedAt - (row?.settled_at.getTime() ?? 0);
      console.info(`coins settled to mail handed over: ${tookMs} ms`);
      expect(tookMs).toBeLessThanOrEqual(10_000);
    } finally {
      await alerts.stop();
      await postgres.close();
      await smtp.stop();
    }
  });

  test("a larger sum needs more blocks, also in small pieces", async () => {
    const accountId = await world.newAccount();
    const { orderId, payTo } = await orderPack(accountId, 20_000);
    await pay(payTo, 200_000n);
    await pay(payTo, 200_000n);
    await generate(1);
    const first = await orderThat(orderId, ({ deposits }) =>
      deposits.every((one) => one.confirmations === 1 && one.confirmationsNeeded === 3),
    );
    expect(first.grantedMicrocredits).toBe(0n);
    await generate(2);
    await balance(accountId).toEqual([40n * pack, 0n]);
  });

  test("replaced by fee before it was in a block: the second counts, nothing is charged back", async () => {
    const accountId = await world.newAccount();
    const { orderId, payTo } = await orderPack(accountId);
    const coin = takeCoin();
    await node.call("sendrawtransaction", signed(coin, payTo, 10_000n).hex);
    await orderThat(orderId, isSeen);
    const second = signed(coin, payTo, 10_000n, 50_000n);
    await node.call("sendrawtransaction", second.hex);
    coins.push({ txid: second.id, index: 1, amount: second.rest });
    await generate(1);
    const paid = await orderThat(orderId, isPaid);
    expect(paid.attention).toBe(Attention.NONE);
    await balance(accountId).toEqual([pack, 0n]);
  });

  test("a block that the chain leaves: the payment waits again, is mined again, and counts once", async () => {
    const accountId = await world.newAccount();
    const { orderId, payTo } = await orderPack(accountId);
    await pay(payTo, 10_000n);
    await generate(1);
    await balance(accountId).toEqual([pack, 0n]);
    await node.call("invalidateblock", await tip());
    await generate(2);
    await expect
      .poll(() =>
        world.run<{ ok: boolean }>(
          `select p.height = c.tip - 1 as ok from chain_payments p join chains c using (chain)
             where p.order_id = $1`,
          [orderId],
        ),
      )
      .toEqual([{ ok: true }]);
    expect(await world.posted(accountId)).toEqual([pack, 0n]);
    expect((await orderThat(orderId, isPaid)).deposits).toHaveLength(1);
  });

  test("spent elsewhere after its block was left: charged back, and paid again", async () => {
    const accountId = await world.newAccount();
    const { orderId, payTo } = await orderPack(accountId);
    const coin = takeCoin();
    await node.call("sendrawtransaction", signed(coin, payTo, 10_000n).hex);
    await generate(1);
    await balance(accountId).toEqual([pack, 0n]);
    await node.call("invalidateblock", await tip());
    const other = signed(coin, payment.address ?? "", 10_000n, 80_000n);
    await node.call("sendrawtransaction", other.hex);
    coins.push({ txid: other.id, index: 1, amount: other.rest });
    await generate(2);
    await balance(accountId).toEqual([0n, 0n]);
    await orderThat(orderId, ({ attention }) => attention === Attention.LOST);
    await pay(payTo, 10_000n);
    await generate(1);
    await balance(accountId).toEqual([pack, 0n]);
  });

  test("late, it counts at the market's rate of its first sight", async () => {
    const accountId = await world.newAccount();
    const { orderId, payTo } = await orderPack(accountId);
    await world.as(admin).cancelOrder({ orderId });
    await world.run(
      `update payment_orders set created_at = created_at - interval '1 hour',
         quoted_until = now() - interval '30 minutes' where order_id = $1`,
      [orderId],
    );
    await pay(payTo, 20_000n);
    await generate(1);
    await balance(accountId).toEqual([2n * pack, 0n]);
    const { orders } = await world.as(admin).listOrders({ accountId });
    expect(orders.map(({ state }) => state).sort()).toEqual([
      ...[OrderState.PAID, OrderState.CANCELLED],
    ]);
  });

  test("without a rate it waits for a person, who decides", async () => {
    const { BTC: usual = 0 } = rates.prices;
    const accountId = await world.newAccount();
    const address = await world.addressByOrder(accountId, "onchain:btc-regtest");
    rates.prices.BTC = 0;
    await expect
      .poll(async () => (await orderPack(accountId).catch(() => undefined))?.orderId, {
        timeout: 30_000,
        interval: 1_000,
      })
      .toBeUndefined();
    for (const { orderId } of (await world.as(admin).listOrders({ accountId })).orders)
      await world.run(
        `update payment_orders set created_at = created_at - interval '1 hour',
           quoted_until = now() - interval '30 minutes' where order_id = $1`,
        [orderId],
      );
    await world.run("delete from rate_samples");
    await pay(address, 10_000n);
    // Of unknown value, it needs as many blocks as the largest sums.
    await generate(6);
    const late = async () =>
      (await world.as(admin).listAttention({})).orders.find(
        (one) => one.accountId === accountId && one.attention === Attention.LATE,
      );
    await expect.poll(late).toBeDefined();
    const { orderId = "" } = (await late()) ?? {};
    await world.as(admin).decideOrder({
      orderId,
      reason: "the rate of that day",
      choice: {
        case: "grant",
        value: { what: { case: "grantedMicrodollars", value: 5_000_000n } },
      },
    });
    await balance(accountId).toEqual([pack, 0n]);
    rates.prices.BTC = usual;
  });

  test("a node that is away for an hour: nothing is closed, and all is found", async () => {
    await expect
      .poll(
        async () => (await orderPack(await world.newAccount()).catch(() => undefined))?.orderId,
        {
          timeout: 30_000,
          interval: 1_000,
        },
      )
      .toBeDefined();
    const accountId = await world.newAccount();
    const { orderId, payTo } = await orderPack(accountId);
    front.state.isAway = true;
    await pay(payTo, 10_000n);
    await generate(40);
    front.state.isAway = false;
    await orderThat(orderId, isPaid);
    await balance(accountId).toEqual([pack, 0n]);
  });

  test("in the end the ledger and the orders agree", async () => {
    await expect
      .poll(() => world.run("select from payment_grants where transfer_id is null"))
      .toEqual([]);
    expect(await world.violations()).toEqual([]);
  });
});
