// How often processors and the database are asked, in real seconds. (looks.test.ts has the rest.)

import { expect, onTestFinished, test } from "vitest";
import { order, realTime, startTestPayments } from "../support/payments.ts";

const second = 1_000;

async function startStage() {
  const stage = await startTestPayments(async () => realTime);
  onTestFinished(() => stage.stop());
  return stage;
}

test("of a hundred due orders, three nodes look at no more than five in any second", async () => {
  const stage = await startStage();
  await stage.run(
    `insert into payment_orders (order_id, account_id, "family", idempotency_key, usd_micro,
       processor, method, asset, network, decimals, external_id, quoted_atoms, rate, created_by,
       quoted_until, watched_until, next_look_at)
     select 'ord_' || n, 'acc_a', 'v1', 'ord_' || n, 5000000, 'simulated', 'simulated:usdt', 'USDT',
       'tron', 6, 'ord_' || n, 5000000, 1000000, 'test', now() + interval '15 minutes',
       now() + interval '7 days', now()
     from generate_series(1, 100) n`,
  );
  for (let node = 0; node < 3; node++) stage.node();
  const times: number[] = [];
  await stage.until(async () => {
    const rows = await stage.run<{ at: Date }>(
      "select looked_at as at from payment_orders where looked_at is not null order by 1",
    );
    times.splice(0, Number.POSITIVE_INFINITY, ...rows.map(({ at }) => at.getTime()));
    expect(times.length).toBeGreaterThanOrEqual(16);
  });
  for (const [index, time] of times.entries())
    expect((times[index + 5] ?? Number.POSITIVE_INFINITY) - time).toBeGreaterThanOrEqual(second);
});

test("when nothing is due, a node sends one statement a second", async () => {
  const stage = await startStage();
  const { admin, database } = stage.node();
  await order(admin);
  await stage.until(() => expect(database.ran.at(-1)).toBe("payments/has-work"));
  const [before, sinceMs] = [database.ran.length, performance.now()];
  await stage.until(() => expect(database.ran.length).toBeGreaterThanOrEqual(before + 4));
  expect(performance.now() - sinceMs).toBeGreaterThanOrEqual(3 * second);
});
