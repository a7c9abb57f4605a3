// A gateway is killed at any point between a payment and its credits. Another process completes
// what it began, and the customer gets the credits once.

import { once } from "node:events";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import type { ChildGateway } from "../support/child-gateway.ts";
import { type CrashCluster, startCrashCluster } from "../support/crash-cluster.ts";

const pack = 1_000_000_000n;

let stage: CrashCluster;
beforeAll(async () => {
  stage = await startCrashCluster();
});
afterAll(() => stage.stop());

/** Calls a method as the operator. */
async function call(gateway: ChildGateway, method: string, body: object): Promise<unknown> {
  const response = await fetch(`${gateway.address}/gateway.${method}`, {
    method: "POST",
    headers: {
      "content-type": "application/json",
      authorization: "Bearer the-admin-token-of-a-crash",
    },
    body: JSON.stringify(body),
  });
  return response.json();
}

async function orderPack(gateway: ChildGateway): Promise<{ accountId: string; orderId: string }> {
  const made = Object(
    await call(gateway, "accounts.v1.AccountsService/CreateAccount", {
      settings: { name: "a customer" },
    }),
  );
  const { accountId } = made.account;
  const ordered = Object(
    await call(gateway, "payments.v1.PaymentsService/CreateOrder", {
      accountId,
      family: "FAMILY_V1",
      packMicrodollars: "5000000",
      method: "simulated:usdc",
      idempotencyKey: "once",
    }),
  );
  return { accountId, orderId: ordered.order.orderId };
}

const moments: { moment: string; before: number }[] = [
  { moment: "deposit stored", before: 0 },
  { moment: "grant decided", before: 0 },
  { moment: "transfer made", before: 1 },
  { moment: "grant posted", before: 1 },
];
for (const { moment, before } of moments) {
  test(`killed at "${moment}": the customer gets the credits once`, async () => {
    const gateway = await stage.start({
      KILL_AT: moment,
      NODE_OPTIONS: `--import ${join(import.meta.dirname, "../support/kill-at.ts")}`,
    });
    const { accountId, orderId } = await orderPack(gateway);
    const exited = once(gateway.process, "exit");
    // The answer may be lost with the process.
    await call(gateway, "payments.v1.PaymentDeskService/SimulateDeposit", {
      orderId,
      deposit: { coins: "5", confirmations: 1 },
    }).catch(() => undefined);
    expect((await exited)[1]).toBe("SIGKILL");
    const transfers = () =>
      stage.ledger.run<{ idempotency_key: string; amount: bigint }>(
        "select idempotency_key, amount from transfers where account_id = $1",
        [accountId],
      );
    expect(await transfers()).toHaveLength(before);
    // The lease of the dead process would end by itself, after half a minute.
    await stage.ledger.run(
      "update payment_orders set lease_until = now(), next_look_at = now() where order_id = $1",
      [orderId],
    );
    const other = await stage.start();
    await expect
      .poll(() =>
        stage.ledger.run(
          "select n, micro from payment_grants where order_id = $1 and transfer_id is not null",
          [orderId],
        ),
      )
      .toEqual([{ n: 1, micro: pack }]);
    expect(await transfers()).toEqual([{ idempotency_key: `pay:${orderId}#1`, amount: pack }]);
    await other.end("SIGTERM");
    await stage.recover();
  });
}
