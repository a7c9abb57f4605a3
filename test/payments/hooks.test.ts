import { afterAll, beforeAll, expect, test } from "vitest";
import * as sql from "../../gen/sql/payments.ts";
import type { PaymentSettings } from "../../src/config/catalog.ts";
import { simulatedPayments } from "../../src/config/catalog.ts";
import type { Caller } from "../../src/contract/contract.ts";
import { connectPostgres } from "../../src/postgres/postgres.ts";
import { errorOf } from "../support/billing.ts";
import { admin, type PaymentsNodes, startPaymentsNodes } from "../support/payments-nodes.ts";
import { hookBody, hookEnv, signature } from "../support/webhooks.ts";

const settings: PaymentSettings = {
  ...simulatedPayments,
  processors: [{ type: "simulated", name: "signed", webhookSecretEnv: "HOOK_SECRET" }],
};
const anyone: Caller = { kind: "anyone" };

let world: PaymentsNodes;
beforeAll(async () => {
  world = await startPaymentsNodes({ settings, env: hookEnv });
});
afterAll(() => world.stop());

const inbox = () =>
  world.run<{ delivery_key: string }>("select delivery_key from payment_hooks order by 1");
const hook = (body: string) => ({
  processor: "signed",
  headers: { "x-simulated-signature": signature(body) },
  body: new TextEncoder().encode(body),
});

test("one delivery that reaches two nodes at once is noted once", async () => {
  const nodes = [world, world.node()];
  const body = hookBody("ord_unknown", "both");
  await Promise.all(nodes.map((node) => node.as(anyone).receiveWebhook(hook(body))));
  expect(await inbox()).toEqual([{ delivery_key: "both" }]);
});

test("a delivery without an id is one by its content", async () => {
  const bodies = ["{}", "{ }", "{}"];
  for (const body of bodies) await world.as(anyone).receiveWebhook(hook(body));
  expect(await inbox()).toHaveLength(3);
});

test("no caller gets around the signature and the size", async () => {
  const before = await inbox();
  for (const caller of [anyone, admin]) {
    const forged = { ...hook("{}"), headers: {} };
    expect((await errorOf(world.as(caller).receiveWebhook(forged))).reason).toBe(
      "invalid_signature",
    );
    const large = hook("x".repeat(65_537));
    expect((await errorOf(world.as(caller).receiveWebhook(large))).reason).toBe(
      "request_too_large",
    );
    const nowhere = { ...hook("{}"), processor: "simulated" };
    expect((await errorOf(world.as(caller).receiveWebhook(nowhere))).reason).toBe("not_found");
  }
  expect(await inbox()).toEqual(before);
});

test("the inbox keeps deliveries for 90 days", async () => {
  const postgres = connectPostgres(world.url);
  try {
    await world.run(
      "update payment_hooks set received_at = now() - interval '91 days' where delivery_key = 'both'",
    );
    await world.run(
      "insert into payment_hooks values ('signed', 'kept', '', now() - interval '89 days', '')",
    );
    await postgres.run(sql.removeHooks);
    const keys = (await inbox()).map((one) => one.delivery_key);
    expect(keys).not.toContain("both");
    expect(keys).toContain("kept");
  } finally {
    await postgres.close();
  }
});
