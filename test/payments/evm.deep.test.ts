// EVM chains, by real nodes: tokens and Ether that arrive at our addresses, chains that go another
// way, and nodes that are behind, lie, or are away.

import { timestampFromDate } from "@bufbuild/protobuf/wkt";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { Family } from "../../gen/gateway/common/v1/family_pb.ts";
import {
  Attention,
  DepositState,
  type Order,
  OrderState,
} from "../../gen/gateway/payments/v1/order_pb.ts";
import { errorOf } from "../support/billing.ts";
import { type Anvil, anvilBinary, startAnvil } from "../support/chain-node.ts";
import { evmAccountKey, onchainSettings, startFront, startRates } from "../support/onchain.ts";
import { admin, type PaymentsNodes, startPaymentsNodes } from "../support/payments-nodes.ts";

const pack = 1_000_000_000n;
const ether = 10n ** 18n;

describe.skipIf(anvilBinary === undefined)("with anvil", () => {
  let chains: Anvil[];
  let token: string;
  let other: string;
  let fronts: Awaited<ReturnType<typeof startFront>>[];
  let rates: Awaited<ReturnType<typeof startRates>>;
  let world: PaymentsNodes;

  beforeAll(async () => {
    chains = [await startAnvil(31_337), await startAnvil(31_338)];
    fronts = await Promise.all(chains.map(({ url }) => startFront(url)));
    rates = await startRates({ ETH: 2_500 });
    token = await one().deployToken();
    other = await one().deployToken();
    await chains[1]?.deployToken();
    const of = (name: string, chainId: number, rpcEnv: string) => ({
      name,
      chainId,
      rpcEnv,
      depth: 3,
      takesEther: true,
      leastUsd: 5,
      tokens: [{ asset: "USDC" as const, contract: token, decimals: 6 }],
    });
    world = await startPaymentsNodes({
      isReal: true,
      settings: onchainSettings(
        {
          evm: {
            accountKey: evmAccountKey,
            gapLimit: 1_000,
            chains: [of("one", 31_337, "RPC_ONE"), of("two", 31_338, "RPC_TWO")],
          },
        },
        rates.sources,
      ),
      env: { RPC_ONE: fronts[0]?.url, RPC_TWO: fronts[1]?.url },
    });
  });
  afterAll(async () => {
    await world?.stop();
    for (const front of fronts ?? []) await front.stop();
    for (const chain of chains ?? []) await chain.stop();
    await rates?.stop();
  });
  beforeEach(() => reads(2));
  afterEach(() => {
    for (const { state } of fronts) Object.assign(state, { bend: undefined, isAway: false });
  });

  const one = (): Anvil => {
    const [first] = chains;
    if (!first) throw new Error("there is no chain");
    return first;
  };
  let keys = 0;
  async function orderPack(accountId: string, coin = "usdc", cents = 500, chain = "one") {
    const { order } = await world.as(admin).createOrder({
      accountId,
      family: Family.V1,
      packMicrodollars: BigInt(cents) * 10_000n,
      method: `onchain:${coin}-${chain}`,
      idempotencyKey: `key_${++keys}`,
    });
    if (!order) throw new Error("the answer has no order");
    return order;
  }
  const orderThat = (orderId: string, isSo: (order: Order) => boolean) =>
    world.orderWhen(orderId, isSo);
  const ordersOf = async (accountId: string) =>
    (await world.as(admin).listOrders({ accountId })).orders;
  const isPaid = ({ state }: Order) => state === OrderState.PAID;
  const balance = (accountId: string) => expect.poll(() => world.posted(accountId));

  /** Waits until each chain was read so often again. */
  async function reads(count: number): Promise<void> {
    for (let done = 0; done < count; done++) {
      const [{ at } = { at: undefined }] = await world.run<{ at: Date }>("select now() as at");
      await expect
        .poll(
          async () => {
            const rows = await world.run<{ fresh: boolean | null }>(
              "select read_at > $1 as fresh from chains",
              [at],
            );
            return rows.length === 2 && rows.every(({ fresh }) => fresh);
          },
          { interval: 30 },
        )
        .toBe(true);
    }
  }
  /** The token of a payment, mined so often that it has settled. */
  async function payToken(to: string, atoms: bigint): Promise<void> {
    await one().transfer(token, to, atoms);
    await one().mine(3);
  }

  test("a token: seen, confirmed, credited once", async () => {
    const accountId = await world.newAccount();
    const { orderId, payTo, quotedCoins: quotedAmount } = await orderPack(accountId);
    expect([payTo, quotedAmount]).toEqual([expect.stringMatching(/^0x[0-9a-fA-F]{40}$/), "5"]);
    await one().transfer(token, payTo, 5_000_000n);
    const seen = await orderThat(orderId, ({ state }) => state === OrderState.SEEN);
    expect(seen.deposits).toMatchObject([{ confirmations: 1, confirmationsNeeded: 3 }]);
    expect(await world.posted(accountId)).toEqual([0n, 0n]);
    await one().mine(2);
    const paid = await orderThat(orderId, isPaid);
    expect(paid.deposits).toMatchObject([{ coins: "5", network: "one", asset: "USDC" }]);
    await balance(accountId).toEqual([pack, 0n]);
    await reads(2);
    expect(await world.transfers(accountId)).toHaveLength(1);
    // The node itself tells the same of its transaction.
    const [sent] = await world.run<{ tx: string }>(
      `select t.tx from payment_transactions t
       join chain_payments c on c.external_id = t.external_id where c.order_id = $1`,
      [orderId],
    );
    const asked = { network: "one", tx: sent?.tx ?? "" };
    const found = await world.as(admin).lookUpPayment(asked);
    expect(found).toMatchObject({ known: true, failed: false, foreignOutputs: 0 });
    expect(found.confirmations).toBeGreaterThanOrEqual(3);
    expect(found.outputs).toMatchObject([
      { accountId, asset: "USDC", coins: "5", orderId, state: DepositState.SETTLED },
    ]);
    const none = await world.as(admin).lookUpPayment({ ...asked, tx: "ab".repeat(32) });
    expect(none.known).toBe(false);
  });

  test("Ether, by its balance, at the rate of the order", async () => {
    const accountId = await world.newAccount();
    const {
      orderId,
      payTo,
      quotedCoins: quotedAmount,
      usdPerCoin: usdRate,
    } = await orderPack(accountId, "eth");
    expect([quotedAmount, usdRate]).toEqual(["0.002", "2500.00"]);
    await one().pay(payTo, ether / 500n);
    await one().mine(3);
    await orderThat(orderId, isPaid);
    await balance(accountId).toEqual([pack, 0n]);
  });

  test("no quote of Ether without rates that agree; a stablecoin needs none", async () => {
    const accountId = await world.newAccount();
    const { ETH: usual = 0 } = rates.prices;
    await expect
      .poll(
        async () => {
          rates.troubles.length = 0;
          for (let count = 0; count < 20; count++)
            rates.troubles.push({ path: "/ETH/a", trouble: { kind: "hang-up" } });
          return (
            await errorOf(
              orderPack(accountId, "eth").then(({ orderId }) =>
                world.as(admin).cancelOrder({ orderId }),
              ),
            )
          ).reason;
        },
        // A rate is used again for 15 seconds, and readers of chains ask for rates, too.
        { interval: 2_500, timeout: 90_000 },
      )
      .toBe("gateway_unavailable");
    expect(await ordersOf(accountId).then((all) => all.every(({ payTo }) => payTo !== ""))).toBe(
      true,
    );
    await orderPack(await world.newAccount());
    rates.troubles.length = 0;
    rates.prices.ETH = usual;
  });

  test("one permanent address for each account and pool, the same on both chains", async () => {
    const [first, second] = [await world.newAccount(), await world.newAccount()];
    const address = async (accountId: string, family: Family, network: string) =>
      (await world.as(admin).createDepositAddress({ accountId, family, network })).address;
    expect((await errorOf(address(first, Family.V1, "one"))).reason).toBe("wrong_state");
    const { orderId, payTo } = await orderPack(first, "usdc", 500, "two");
    expect(await address(first, Family.V1, "one")).toBe(payTo);
    // Another pool has none before the account has paid.
    expect((await errorOf(address(first, Family.V2, "one"))).reason).toBe("wrong_state");
    await chains[1]?.transfer(token, payTo, 5_000_000n);
    await chains[1]?.mine(3);
    await orderThat(orderId, isPaid);
    await balance(first).toEqual([pack, 0n]);
    const made = await Promise.all(
      Array.from({ length: 20 }, () => address(first, Family.V2, "one")),
    );
    expect(new Set(made).size).toBe(1);
    expect(await address(first, Family.V2, "two")).toBe(made[0]);
    expect(made[0]).not.toBe(payTo);
    expect((await orderPack(second)).payTo).not.toBe(payTo);
    expect((await errorOf(address(first, Family.V1, "bitcoin"))).reason).toBe("invalid_request");
    expect((await errorOf(address("acc_nobody", Family.V1, "one"))).reason).toBe("not_found");
    const [gap] = await world.run(
      "select next_index - (select count(*) from deposit_addresses) as gap from deposit_keys",
    );
    expect(gap).toEqual({ gap: 0n });
  });

  test("a new order replaces the open one, and what arrives goes to the new one", async () => {
    const accountId = await world.newAccount();
    const old = await orderPack(accountId, "usdc", 500, "two");
    const { orderId, payTo } = await orderPack(accountId, "usdc", 1_000);
    expect((await orderThat(old.orderId, () => true)).state).toBe(OrderState.CANCELLED);
    await payToken(payTo, 10_000_000n);
    await orderThat(orderId, isPaid);
  });

  test("without an order: below a dollar it waits, and then it counts with the next", async () => {
    const accountId = await world.newAccount();
    const address = await world.addressByOrder(accountId, "onchain:usdc-one");
    const earlier = (await ordersOf(accountId)).length;
    await payToken(address, 600_000n);
    await reads(2);
    expect(await ordersOf(accountId)).toHaveLength(earlier);
    await payToken(address, 600_000n);
    await balance(accountId).toEqual([240_000_000n, 0n]);
    const [direct] = await ordersOf(accountId);
    expect(direct).toMatchObject({ method: "onchain:usdc-one", state: OrderState.PAID });
    expect(direct?.deposits).toMatchObject([{ coins: "1.2" }]);
    await one().pay(address, ether / 1_000n);
    await one().mine(3);
    await balance(accountId).toEqual([740_000_000n, 0n]);
  });

  test("two pieces, and more than ordered, and late: all of it counts", async () => {
    const accountId = await world.newAccount();
    const { orderId, payTo } = await orderPack(accountId);
    await payToken(payTo, 2_000_000n);
    await payToken(payTo, 4_500_000n);
    await orderThat(orderId, isPaid);
    await balance(accountId).toEqual([1_300_000_000n, 0n]);
    await world.run(
      "update payment_orders set quoted_until = now() - interval '1 minute' where order_id = $1",
      [orderId],
    );
    await payToken(payTo, 3_000_000n);
    await balance(accountId).toEqual([1_900_000_000n, 0n]);
    expect(await ordersOf(accountId)).toHaveLength(2);
  });

  test("a token that is not listed, and nothing of a listed one, is nothing", async () => {
    const accountId = await world.newAccount();
    const { orderId, payTo } = await orderPack(accountId);
    await one().transfer(other, payTo, 5_000_000n);
    await one().transfer(token, payTo, 0n);
    await one().mine(3);
    await reads(2);
    expect((await orderThat(orderId, () => true)).deposits).toEqual([]);
  });

  test("a chain that goes another way before a payment settled: what its new block has counts, once", async () => {
    const accountId = await world.newAccount();
    const { orderId, payTo } = await orderPack(accountId);
    const paid = await one().transfer(token, payTo, 5_000_000n);
    await orderThat(orderId, ({ state }) => state === OrderState.SEEN);
    const raw = await one().call("eth_getRawTransactionByHash", paid.transactionHash);
    await one().call("anvil_reorg", 1, []);
    await reads(2);
    // Other logs come before it in its new block.
    await one().call("evm_setAutomine", false);
    await one().call("eth_sendRawTransaction", raw);
    await one().mine(1);
    await one().call("evm_setAutomine", true);
    await one().mine(3);
    const again = await orderThat(orderId, isPaid);
    expect(again.deposits.map(({ state }) => state).sort()).toEqual([
      ...[DepositState.SETTLED, DepositState.LOST].sort(),
    ]);
    expect(again.attention).toBe(Attention.NONE);
    await balance(accountId).toEqual([pack, 0n]);
  });

  test("a chain that leaves a credited payment: charged back at once, and paid again", async () => {
    const accountId = await world.newAccount();
    const { orderId, payTo } = await orderPack(accountId);
    await payToken(payTo, 5_000_000n);
    await balance(accountId).toEqual([pack, 0n]);
    await reads(1);
    await one().call("anvil_reorg", 6, []);
    await one().mine(2);
    await balance(accountId).toEqual([0n, 0n]);
    await orderThat(orderId, ({ attention }) => attention === Attention.LOST);
    await payToken(payTo, 5_000_000n);
    await balance(accountId).toEqual([pack, 0n]);
  });

  test("Ether in a block that the chain left is charged back, and what comes again counts", async () => {
    const accountId = await world.newAccount();
    const { orderId, payTo } = await orderPack(accountId, "eth");
    await one().pay(payTo, ether / 500n);
    await one().mine(2);
    await balance(accountId).toEqual([pack, 0n]);
    await reads(1);
    await one().call("anvil_reorg", 5, []);
    await one().mine(1);
    await balance(accountId).toEqual([0n, 0n]);
    await orderThat(orderId, ({ attention }) => attention === Attention.LOST);
    await one().pay(payTo, ether / 500n);
    await one().mine(3);
    await balance(accountId).toEqual([pack, 0n]);
  });

  test("two chains and one address: fifty readings make no deposit of nothing", async () => {
    const accountId = await world.newAccount();
    const { payTo } = await orderPack(accountId, "eth");
    await one().pay(payTo, ether / 500n);
    await one().mine(3);
    await balance(accountId).toEqual([pack, 0n]);
    const count = () => world.run("select count(*) as count from chain_payments");
    const before = await count();
    for (let read = 0; read < 50; read++) {
      await one().mine(1);
      await chains[1]?.mine(1);
      await reads(1);
    }
    expect(await count()).toEqual(before);
    expect(await world.posted(accountId)).toEqual([pack, 0n]);
  });

  test("after a sweep the next Ether counts; what may have come during it asks a person", async () => {
    const accountId = await world.newAccount();
    const { orderId, payTo } = await orderPack(accountId, "eth");
    await one().pay(payTo, ether / 500n);
    await one().mine(3);
    await balance(accountId).toEqual([pack, 0n]);
    await one().call("anvil_impersonateAccount", payTo);
    await one().send({
      from: payTo,
      to: one().sender,
      value: `0x${(ether / 1_000n).toString(16)}`,
    });
    await one().mine(3);
    await orderThat(orderId, ({ attention }) => attention === Attention.SWEPT);
    await one().pay(payTo, ether / 500n);
    await one().mine(3);
    await balance(accountId).toEqual([2n * pack, 0n]);
  });

  test("gas during a sweep is recorded and not credited, and a person may grant it", async () => {
    const accountId = await world.newAccount();
    const { payTo } = await orderPack(accountId, "eth");
    await one().pay(payTo, ether / 500n);
    await one().mine(3);
    await balance(accountId).toEqual([pack, 0n]);
    const until = timestampFromDate(new Date(Date.now() + 3_600_000));
    const marked = { network: "one", addresses: [payTo], until };
    const { sweep } = await world.as(admin).beginSweep(marked);
    const sweepId = sweep?.sweepId ?? "";
    await one().pay(payTo, ether / 1_000n);
    await one().mine(3);
    await reads(2);
    await one().call("anvil_impersonateAccount", payTo);
    const value = `0x${(ether / 400n).toString(16)}`;
    await one().send({ from: payTo, to: one().sender, value });
    await one().mine(3);
    await reads(2);
    await world.as(admin).endSweep({ sweepId });
    const ended = () => world.as(admin).endSweep({ sweepId });
    await expect
      .poll(async () => {
        await one().mine(1);
        return (await ended()).sweep?.read;
      })
      .toBe(true);
    const [recorded] = (await ended()).sweep?.payments ?? [];
    expect(recorded).toMatchObject({ coins: "0.001", asset: "ETH" });
    expect(recorded?.grantedBy).toBeUndefined();
    expect(await world.posted(accountId)).toEqual([pack, 0n]);
    expect((await ordersOf(accountId)).map(({ attention }) => attention)).toEqual([Attention.NONE]);
    await one().pay(payTo, ether / 500n);
    await one().mine(3);
    await balance(accountId).toEqual([2n * pack, 0n]);
    const grant = { sweepId, paymentId: recorded?.paymentId ?? "" };
    await world.as(admin).grantSweepPayment(grant);
    await balance(accountId).toEqual([(5n * pack) / 2n, 0n]);
    expect((await errorOf(world.as(admin).grantSweepPayment(grant))).reason).toBe("wrong_state");
    for (const [bad, field] of [
      [{ ...marked, network: "regtest" }, "network"],
      [{ ...marked, addresses: [] }, "addresses"],
      [{ ...marked, addresses: [payTo, one().sender] }, "addresses[1]"],
      [{ ...marked, until: timestampFromDate(new Date(0)) }, "until"],
    ] satisfies [object, string][]) {
      const refused = await errorOf(world.as(admin).beginSweep(bad));
      expect([refused.reason, refused.field]).toEqual(["invalid_request", field]);
    }
    expect((await world.as(admin).listSweeps({})).sweeps.map((all) => all.sweepId)).toEqual([
      sweepId,
    ]);
  });

  test("a balance that falls without a transaction of its address is the new base, once", async () => {
    const accountId = await world.newAccount();
    const { orderId, payTo } = await orderPack(accountId, "eth");
    await one().pay(payTo, ether / 500n);
    await one().mine(3);
    await balance(accountId).toEqual([pack, 0n]);
    await one().call("anvil_setBalance", payTo, "0x1");
    await one().mine(3);
    await orderThat(orderId, ({ attention }) => attention === Attention.SWEPT);
    await one().pay(payTo, ether / 500n);
    await one().mine(3);
    await balance(accountId).toEqual([2n * pack, 0n]);
  });

  test("a node that is behind loses nothing, and one that is away closes nothing", async () => {
    const accountId = await world.newAccount();
    const { orderId, payTo } = await orderPack(accountId);
    const [front] = fronts;
    if (!front) throw new Error("there is no front");
    // It names new blocks, and has no logs of them.
    front.state.bend = (method) => (method === "eth_getLogs" ? [] : undefined);
    await one().transfer(token, payTo, 5_000_000n);
    await reads(2);
    front.state.bend = undefined;
    await orderThat(orderId, ({ state }) => state === OrderState.SEEN);
    front.state.isAway = true;
    await one().mine(5);
    // Nobody has read the chain for an hour, and the order would be closed by now.
    await expect
      .poll(() =>
        world.run(
          "select 1 as x from chains where chain = 'one' and read_at > now() - interval '1 s'",
        ),
      )
      .toEqual([]);
    await world.run("update chains set read_at = now() - interval '1 hour'");
    await world.run(
      `update payment_orders set looked_at = now() - interval '1 hour', next_look_at = now(),
         watched_until = now() - interval '1 minute' where order_id = $1`,
      [orderId],
    );
    await expect
      .poll(() =>
        world.run(
          "select 1 as x from payment_orders where order_id = $1 and next_look_at > now()",
          [orderId],
        ),
      )
      .toHaveLength(1);
    expect((await orderThat(orderId, () => true)).state).not.toBe(OrderState.CLOSED);
    await world.run(
      "update payment_orders set watched_until = now() + interval '1 day' where order_id = $1",
      [orderId],
    );
    front.state.isAway = false;
    await orderThat(orderId, isPaid);
    await balance(accountId).toEqual([pack, 0n]);
  });

  test("a node that shows logs nobody asked for is not believed", async () => {
    const accountId = await world.newAccount();
    const { orderId, payTo } = await orderPack(accountId);
    const [front] = fronts;
    const log = (await one().transfer(other, payTo, 5_000_000n)).logs[0];
    if (front) front.state.bend = (method) => (method === "eth_getLogs" ? [log] : undefined);
    await one().mine(3);
    await expect.poll(() => front?.calls.length).toBeGreaterThan((front?.calls.length ?? 0) + 5);
    expect(await world.posted(accountId)).toEqual([0n, 0n]);
    if (front) front.state.bend = undefined;
    await reads(1);
    expect((await orderThat(orderId, () => true)).deposits).toEqual([]);
  });

  test("two nodes read a chain one at a time, and credit once", async () => {
    const second = world.node();
    second.payments.start();
    const accountId = await world.newAccount();
    const { orderId, payTo } = await orderPack(accountId);
    await payToken(payTo, 5_000_000n);
    await orderThat(orderId, isPaid);
    await balance(accountId).toEqual([pack, 0n]);
    expect(await world.transfers(accountId)).toHaveLength(1);
    await second.payments.stop();
  });

  test("in the end the ledger and the orders agree", async () => {
    await expect
      .poll(() => world.run("select from payment_grants where transfer_id is null"))
      .toEqual([]);
    expect(await world.violations()).toEqual([]);
  });
});
