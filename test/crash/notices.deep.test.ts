// A gateway is killed at any point between a payment and its mail. Another one tells what it did
// not, and the buyer hears of it once.

import { once } from "node:events";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import type { ChildGateway } from "../support/child-gateway.ts";
import { type CrashCluster, startCrashCluster } from "../support/crash-cluster.ts";
import { startSmtpServer, type TestSmtpServer } from "../support/smtp.ts";

let stage: CrashCluster;
let smtp: TestSmtpServer;
beforeAll(async () => {
  stage = await startCrashCluster();
  smtp = await startSmtpServer();
});
afterAll(async () => {
  await stage.stop();
  await smtp.stop();
});

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

const moments = [
  ...["deposit stored", "event stored", "grant decided", "transfer made", "grant posted"],
  ...["alert unraised", "alert raised", "event read"],
];
let accounts = 0;

for (const moment of moments)
  test(`killed at "${moment}": the buyer hears of it once`, async () => {
    const env = { SMTP_URL: smtp.url, MAIL_FROM: "gateway@example.com" };
    // Its account, its order and its owner are there before anything kills a process.
    const calm = await stage.start(env);
    const made = Object(
      await call(calm, "accounts.v1.AccountsService/CreateAccount", {
        settings: { name: "a customer" },
      }),
    );
    const { accountId } = made.account;
    const address = `buyer-${++accounts}@example.com`;
    await stage.ledger.run(
      "insert into people (person_id, login, email, email_verified_at) values ($1, $1, $1, now())",
      [address],
    );
    await stage.ledger.run(
      "insert into members (account_id, person_id, role) values ($1, $2, 'owner')",
      [accountId, address],
    );
    await calm.end("SIGTERM");
    const gateway = await stage.start({
      ...env,
      KILL_AT: moment,
      NODE_OPTIONS: `--import ${join(import.meta.dirname, "../support/kill-at.ts")}`,
    });
    const exited = once(gateway.process, "exit");
    const ordered = Object(
      await call(gateway, `payments.v1.PaymentsService/CreateOrder`, {
        ...{
          accountId,
          family: "FAMILY_V1",
          packMicrodollars: "5000000",
          method: "simulated:usdc",
        },
        idempotencyKey: "once",
      }),
    );
    const { orderId } = ordered.order;
    // The answer may be lost with the process.
    await call(gateway, `payments.v1.PaymentDeskService/SimulateDeposit`, {
      orderId,
      deposit: { coins: "5", confirmations: 1 },
    }).catch(() => undefined);
    expect((await exited)[1]).toBe("SIGKILL");
    const other = await stage.start(env);
    // The leases of the dead process would end by themselves.
    await stage.ledger.run(
      "update payment_orders set lease_until = now(), next_look_at = now() where order_id = $1",
      [orderId],
    );
    await stage.ledger.run("delete from leases where task = 'alerts'");
    await stage.ledger.run("update alert_deliveries set next_at = now() where state = 'waiting'");
    const alerts = () =>
      stage.ledger.run<{ kind: string }>(
        "select kind from alerts where account_id = $1 order by kind",
        [accountId],
      );
    await expect
      .poll(alerts, { timeout: 45_000 })
      .toEqual([{ kind: "payment_credited" }, { kind: "payment_seen" }]);
    const mails = () => smtp.mails.filter(({ to }) => to.includes(address));
    await expect.poll(() => mails().length, { timeout: 45_000 }).toBe(1);
    await stage.ledger.run("delete from leases where task = 'alerts'");
    await expect
      .poll(() =>
        stage.ledger.run("select from payment_events where order_id = $1 and not is_read", [
          orderId,
        ]),
      )
      .toEqual([]);
    expect(await alerts()).toHaveLength(2);
    expect(mails()).toHaveLength(1);
    await other.end("SIGTERM");
    await stage.recover();
  }, 120_000);
