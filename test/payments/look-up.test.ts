// What a node says of one transaction, for a buyer of whom nothing is found.

import { create } from "@bufbuild/protobuf";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { OperatorRole } from "../../gen/gateway/common/v1/roles_pb.ts";
import { DepositState } from "../../gen/gateway/payments/v1/order_pb.ts";
import { LookUpPaymentRequestSchema } from "../../gen/gateway/payments/v1/payment_desk_pb.ts";
import { createLog } from "../../src/base/log.ts";
import { Outbound } from "../../src/base/outbound.ts";
import { environmentToken } from "../../src/contract/contract.ts";
import { createBitcoin } from "../../src/payments/bitcoin.ts";
import { createEvm } from "../../src/payments/evm.ts";
import { lookUpPayment } from "../../src/payments/look-up.ts";
import type { Parts } from "../../src/payments/parts.ts";
import { createRpc } from "../../src/payments/rpc.ts";
import { callBy } from "../support/calls.ts";
import { errorOf } from "../support/contract-cases.ts";
import { type JsonServer, startJsonServer } from "../support/json-server.ts";
import { movableTime, startTestPayments } from "../support/payments.ts";

const log = createLog("silent");
const ours = { bitcoin: "bc1qours", evm: `0x${"0a".repeat(20)}` };
const theirs = `0x${"0b".repeat(20)}`;
const token = `0x${"0c".repeat(20)}`;
const transfer = "0xddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef";
const [mined, waiting, failed, unknown, paidOut] = ["1", "2", "3", "4", "5"].map((n) =>
  n.repeat(64),
) as [string, string, string, string, string];
const topicOf = (address: string) => `0x${address.slice(2).padStart(64, "0")}`;
const amountOf = (atoms: bigint) => `0x${atoms.toString(16).padStart(64, "0")}`;

/** What the nodes answer, by method and hash. Undefined: an error. */
const results: Readonly<Record<string, unknown>> = {
  [`getrawtransaction ${mined}`]: {
    confirmations: 3,
    vout: [
      { value: 0.0123, scriptPubKey: { address: ours.bitcoin } },
      { value: 1.5, scriptPubKey: { address: "bc1qchange" } },
      { value: 0, scriptPubKey: { type: "nulldata" } },
    ],
  },
  [`getrawtransaction ${waiting}`]: {
    vout: [{ value: 1, scriptPubKey: { address: "bc1qother" } }],
  },
  "eth_chainId ": "0x1",
  "eth_blockNumber ": "0x64",
  [`eth_getTransactionByHash 0x${mined}`]: { to: token, value: "0x0", input: "0xa9059cbb" },
  [`eth_getTransactionReceipt 0x${mined}`]: {
    ...{ status: "0x1", blockNumber: "0x60" },
    logs: [
      {
        address: token,
        topics: [transfer, topicOf(theirs), topicOf(ours.evm)],
        data: amountOf(7_500_000n),
      },
      { address: token, topics: [transfer, topicOf(theirs), topicOf(theirs)], data: amountOf(1n) },
      {
        address: theirs,
        topics: [transfer, topicOf(theirs), topicOf(ours.evm)],
        data: amountOf(9n),
      },
      { address: token, topics: [], data: "0x" },
    ],
  },
  [`eth_getTransactionByHash 0x${waiting}`]: {
    to: ours.evm.toUpperCase(),
    value: "0xde0b6b3a7640000",
    input: "0x",
  },
  [`eth_getTransactionReceipt 0x${waiting}`]: null,
  [`eth_getTransactionByHash 0x${failed}`]: { to: token, value: "0x0", input: "0xa9059cbb" },
  [`eth_getTransactionReceipt 0x${failed}`]: { status: "0x0", blockNumber: "0x64", logs: [] },
  // A contract that pays out: its Ether is in no log and in no value.
  [`eth_getTransactionByHash 0x${paidOut}`]: { to: theirs, value: "0x0", input: "0x3ccfd60b" },
  [`eth_getTransactionReceipt 0x${paidOut}`]: { status: "0x1", blockNumber: "0x60", logs: [] },
  [`eth_getTransactionByHash 0x${unknown}`]: null,
  [`eth_getTransactionReceipt 0x${unknown}`]: null,
};

let world: Awaited<ReturnType<typeof startTestPayments>>;
let node: JsonServer;
let parts: Parts;
beforeAll(async () => {
  world = await startTestPayments(movableTime);
  node = await startJsonServer(({ body }) => {
    const answer = (call: unknown) => {
      const { id, method, params } = Object(call);
      const result = results[`${method} ${params[0] ?? ""}`];
      return result === undefined
        ? { id, error: { code: -5, message: "No such transaction" } }
        : { id, result };
    };
    return { body: Array.isArray(body) ? body.map(answer) : answer(body) };
  });
  const rpc = createRpc("the node of the test", new URL(node.url), new Outbound());
  const { store } = world.parts;
  const of = { store, marketRate: undefined, log };
  const usdt = { asset: "USDT", contract: token, decimals: 6 };
  const evm = { name: "ethereum", chainId: 1, depth: undefined, takesEther: true, tokens: [usdt] };
  parts = {
    ...world.parts,
    chains: () => [
      { processor: "onchain", chain: createBitcoin({ chain: "bitcoin" }, rpc, of) },
      { processor: "onchain", chain: createEvm(evm, rpc, of) },
    ],
  };
  await world.run("insert into deposit_keys values ('key_of_test', 2)");
  for (const [index, address] of [ours.bitcoin, ours.evm].entries())
    await world.run(
      `insert into deposit_addresses (key_id, index, address, account_id, "family")
       values ('key_of_test', $1, $2, $3, 'v1')`,
      [index, address, index === 0 ? "acc_a" : "acc_b"],
    );
});
afterAll(async () => {
  await node.stop();
  await world.stop();
});

const lookUp = (network: string, tx: string) =>
  lookUpPayment(
    parts,
    create(LookUpPaymentRequestSchema, { network, tx }),
    callBy(environmentToken),
  );

describe("a transaction", () => {
  test("of Bitcoin: what it pays us, how deep, and what it pays others", async () => {
    expect(await lookUp("bitcoin", mined)).toMatchObject({
      ...{ known: true, failed: false, confirmations: 3, foreignOutputs: 1 },
      outputs: [
        {
          ...{ address: ours.bitcoin, accountId: "acc_a", asset: "BTC", coins: "0.0123" },
          ...{ depositId: "", state: DepositState.UNSPECIFIED },
        },
      ],
    });
    const waits = await lookUp("bitcoin", `0x${waiting.toUpperCase()}`);
    expect(waits).toMatchObject({ known: true, outputs: [], foreignOutputs: 1 });
    expect(waits.confirmations).toBeUndefined();
  });

  test("of an EVM chain: listed tokens by their logs, and Ether by its value", async () => {
    expect(await lookUp("ethereum", mined)).toMatchObject({
      ...{ known: true, confirmations: 5, foreignOutputs: 1 },
      outputs: [{ address: ours.evm, accountId: "acc_b", asset: "USDT", coins: "7.5" }],
    });
    expect(await lookUp("ethereum", waiting)).toMatchObject({
      maySendMore: false,
      outputs: [{ accountId: "acc_b", asset: "ETH", coins: "1" }],
    });
    expect(await lookUp("ethereum", failed)).toMatchObject({
      ...{ known: true, failed: true, confirmations: 1, outputs: [], maySendMore: false },
    });
  });

  test("that calls a contract may have sent Ether that it does not show", async () => {
    expect(await lookUp("ethereum", paidOut)).toMatchObject({
      ...{ known: true, failed: false, outputs: [], maySendMore: true },
    });
  });

  test("that was read is shown with what became of it", async () => {
    await world.run(
      `insert into chain_payments (processor, external_id, chain, address, asset, decimals, atoms,
         state, first_seen_at)
       values ('onchain', 'ethereum:read', 'ethereum', $1, 'USDT', 6, 7500000, 'settled', now())`,
      [ours.evm],
    );
    await world.run(
      "insert into payment_transactions values ('onchain', 'ethereum', $1, 'ethereum:read')",
      [`0x${mined}`],
    );
    expect(await lookUp("ethereum", mined)).toMatchObject({
      outputs: [{ depositId: "ethereum:read", state: DepositState.SETTLED, orderId: "" }],
    });
  });

  test("makes its order be looked at again, unless that is closed or watched no more", async () => {
    const orders = { ord_open: "open", ord_closed: "closed", ord_over: "paid" } as const;
    for (const [orderId, state] of Object.entries(orders))
      await world.run(
        `insert into payment_orders (order_id, account_id, "family", idempotency_key, usd_micro,
           processor, method, asset, network, decimals, external_id, quoted_atoms,
           rate, pay_to, created_by, state, quoted_until, watched_until, next_look_at)
         values ($1, 'acc_b', 'v1', $1, 5000000, 'onchain', 'onchain:usdt', 'USDT', 'ethereum', 6,
           $1, 5000000, 1000000, $4, 'token:a', $2, now(), now() + interval '1 day', $3)`,
        [orderId, state, state === "paid" ? null : new Date(Date.now() + 3_600_000), ours.evm],
      );
    const hooked = async (orderId: string) => {
      await world.run(
        "update chain_payments set order_id = $1 where external_id = 'ethereum:read'",
        [orderId],
      );
      const found = await lookUp("ethereum", mined);
      expect(found.outputs).toMatchObject([{ orderId }]);
      const [row] = await world.run<{ hooked: boolean; asked: boolean }>(
        `select hook_at is not null as hooked, coalesce(next_look_at <= now(), false) as asked
         from payment_orders where order_id = $1`,
        [orderId],
      );
      return row;
    };
    expect(await hooked("ord_open")).toEqual({ hooked: true, asked: true });
    expect(await hooked("ord_closed")).toEqual({ hooked: false, asked: false });
    expect(await hooked("ord_over")).toEqual({ hooked: false, asked: false });
  });

  test("is asked for by few at once: two of one caller, and eight in all", async () => {
    const { promise: silence, resolve: answer } = Promise.withResolvers<undefined>();
    const [slow] = parts.chains();
    if (!slow) throw new Error("no chain is read");
    let asked = 0;
    const lookUpSlowly = () => {
      asked++;
      return silence;
    };
    const chain = { ...slow.chain, lookUp: lookUpSlowly };
    const waiting = { ...parts, chains: () => [{ ...slow, chain }], lookingUp: new Map() };
    const by = (personId: string) =>
      lookUpPayment(
        waiting,
        create(LookUpPaymentRequestSchema, { network: "bitcoin", tx: mined }),
        callBy({
          ...{ kind: "person", personId, sessionId: "ses", memberships: [] },
          ...{ operator: OperatorRole.ADMIN, strongUntil: undefined },
        }),
      );
    const running = [by("per_ann"), by("per_ann")];
    const third = await errorOf(by("per_ann"));
    expect(third.reason).toBe("rate_limited");
    expect(third.facts).toMatchObject({ limit: { name: "look_ups_at_once", limit: 2n } });
    for (const name of ["bob", "cleo", "dan"]) running.push(by(name), by(name));
    const ninth = await errorOf(by("per_eve"));
    expect(ninth.facts).toMatchObject({ limit: { name: "look_ups_at_once", limit: 8n } });
    expect(asked).toBe(8);
    answer(undefined);
    expect(await Promise.all(running)).toHaveLength(8);
    expect(waiting.lookingUp.size).toBe(0);
    expect(await by("per_ann")).toMatchObject({ known: false });
  });

  test("that the node does not have is not known", async () => {
    for (const network of ["bitcoin", "ethereum"])
      expect(await lookUp(network, unknown)).toMatchObject({ known: false, outputs: [] });
  });

  test("is asked for by a hash, of a network that is read, from a node that answers", async () => {
    expect((await errorOf(lookUp("bitcoin", "x".repeat(64)))).facts.field).toBe("tx");
    expect((await errorOf(lookUp("tron", mined))).facts).toMatchObject({
      ...{ field: "network", allowed: ["bitcoin", "ethereum"] },
    });
    node.troubles.push({ path: "/", trouble: { kind: "status", status: 503 } });
    expect((await errorOf(lookUp("bitcoin", mined))).reason).toBe("gateway_unavailable");
  });
});
