// A gateway is killed while it reads a chain, or during a sweep. Another process goes on: what came
// counts once, and gas is recorded once.

import { once } from "node:events";
import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import type { ChildGateway } from "../support/child-gateway.ts";
import { type CrashCluster, startCrashCluster } from "../support/crash-cluster.ts";
import { newHash, startModelEvm, type Transfer } from "../support/model-chains.ts";
import { evmAccountKey, startRates } from "../support/onchain.ts";
import { pathOf } from "../support/paths.ts";

const pack = 1_000_000_000n;
/** Of Ether, at 2,500 dollars. */
const fiveDollars = 10n ** 18n / 500n;

let stage: CrashCluster;
let evm: Awaited<ReturnType<typeof startModelEvm>>;
let rates: Awaited<ReturnType<typeof startRates>>;
let config = "";
beforeAll(async () => {
  stage = await startCrashCluster();
  evm = await startModelEvm(7);
  rates = await startRates({ ETH: 2_500 });
  config = `${stage.catalogPath}.chains.yaml`;
  await writeFile(
    config,
    `${await readFile(stage.catalogPath, "utf8")}
payments:
  processors:
    - name: onchain
      type: onchain
      evm:
        account_key: ${evmAccountKey}
        chains:
          - name: one
            chain_id: 7
            rpc: EVM_RPC
            depth: 2
            ether: true
            tokens: [ { asset: USDC, contract: "0x${"1".repeat(40)}" } ]
  rates:
    ETH:
      - { url: "${rates.url}/ETH/a", path: data.amount }
      - { url: "${rates.url.replace("127.0.0.1", "localhost")}/ETH/b", path: price.0 }
`,
  );
});
afterAll(async () => {
  await stage?.stop();
  await rates?.stop();
  await evm?.stop();
});

const moments = {
  payments: ["payment stored", "chunk stored", "order made directly", "page settled"],
  sweep: ["balance moved", "gas recorded", "sweep ended", "gas granted"],
};
for (const moment of [...moments.payments, ...moments.sweep])
  test(`killed at "${moment}": what came counts once, gas is recorded once`, async () => {
    const start = (more: NodeJS.ProcessEnv = {}) =>
      stage.start({ CONFIG: config, EVM_RPC: evm.url, ...more });
    let gateway = await start({
      KILL_AT: moment,
      NODE_OPTIONS: `--import ${join(import.meta.dirname, "../support/kill-at.ts")}`,
    });
    let died = false;
    let kills = 0;
    const follow = (one: ChildGateway) =>
      void once(one.process, "exit").then(([, signal]) => {
        died = true;
        if (signal === "SIGKILL") kills++;
      });
    follow(gateway);
    /** Starts another gateway if this one died, with the leases of the dead one ended. */
    const revive = async () => {
      if (!died) return;
      died = false;
      gateway = await start();
      follow(gateway);
    };
    /** Calls until a gateway that lives answers. */
    const call = async (method: string, body: object) => {
      for (;;) {
        const answer = await fetch(`${gateway.address}/gateway.${method}`, {
          method: "POST",
          headers: {
            "content-type": "application/json",
            authorization: "Bearer the-admin-token-of-a-crash",
          },
          body: JSON.stringify(body),
        }).catch(() => undefined);
        if (answer) return Object(await answer.json());
        await expect.poll(() => died).toBe(true);
        await revive();
      }
    };
    const payments = (method: string, body: object) =>
      call(pathOf(method).slice("/gateway.".length), body);
    const hurry = async () => {
      await revive();
      await stage.ledger.run("update chains set lease_until = null, next_read_at = now()");
      await stage.ledger.run(
        "update payment_orders set lease_until = null, next_look_at = least(next_look_at, now())",
      );
    };
    const until = <T>(read: () => Promise<T>) =>
      expect.poll(
        async () => {
          await hurry();
          return read();
        },
        { interval: 200, timeout: 60_000 },
      );
    const mine = (...items: Omit<Transfer, "tx">[]) => {
      evm.chain.mine(items.map((one) => ({ ...one, tx: newHash() })));
      for (let more = 0; more < 2; more++) evm.chain.mine([]);
    };

    const finish = async () => {
      expect(
        await stage.ledger.run("select from transfers where account_id = $1", [accountId]),
      ).toHaveLength(1);
      await expect.poll(() => kills).toBe(1);
      await revive();
      await gateway.end("SIGTERM");
      await stage.recover();
    };

    const { account } = await call("accounts.v1.AccountsService/CreateAccount", {
      settings: { name: "x" },
    });
    const { accountId } = account;
    const posted = async () => {
      const [row] = await stage.ledger.run<{ sum: bigint }>(
        "select coalesce(sum(amount), 0)::bigint as sum from transfers where account_id = $1",
        [accountId],
      );
      return row?.sum;
    };
    await until(() => stage.ledger.run("select from chains where tip is not null")).toHaveLength(1);
    const order = {
      accountId,
      family: "FAMILY_V1",
      packMicrodollars: "5000000",
      idempotencyKey: "once",
    };
    const ordered = await payments("CreateOrder", { ...order, method: "onchain:usdc-one" });
    const { payTo } = ordered.order;
    const to = payTo.toLowerCase();
    // What comes has no order.
    await stage.ledger.run(
      `update payment_orders set created_at = created_at - interval '1 day',
         quoted_until = quoted_until - interval '1 day' where account_id = $1`,
      [accountId],
    );
    if (moments.payments.includes(moment)) {
      mine({ to, atoms: 5_000_000n });
      await until(posted).toBe(pack);
      await finish();
      return;
    }

    const list = async () => {
      const { sweeps } = await payments("ListSweeps", {});
      return sweeps?.find(({ addresses }: { addresses: string[] }) => addresses.includes(to));
    };
    const end = new Date(Date.now() + 3_600_000).toISOString();
    await payments("BeginSweep", { network: "one", addresses: [payTo], until: end });
    mine({ to, atoms: fiveDollars, isEther: true });
    await until(async () => (await list())?.payments?.length).toBe(1);
    const { sweepId } = await list();
    await payments("EndSweep", { sweepId });
    await until(async () => {
      mine();
      return (await list())?.read;
    }).toBe(true);
    const found = await list();
    expect(found.payments).toMatchObject([{ coins: "0.002", asset: "ETH" }]);
    expect(await posted()).toBe(0n);
    await payments("GrantSweepPayment", { sweepId, paymentId: found.payments[0].paymentId });
    await until(posted).toBe(pack);
    await finish();
  });
