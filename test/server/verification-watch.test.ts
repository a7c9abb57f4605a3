import { expect, onTestFinished, test } from "vitest";
import { createBilling } from "../../src/billing/billing.ts";
import { Metrics, render, snapshotOf } from "../../src/metrics/metrics.ts";
import { watchVerifications } from "../../src/server/verification-watch.ts";
import { ManualClock, passUntil } from "../support/clock.ts";
import { freshDatabase } from "../support/database.ts";
import { log } from "../support/ledger.ts";
import { query } from "../support/query.ts";

test("what the last check of the ledger found is a metric, whoever ran it", async () => {
  const { postgres, drop } = await freshDatabase();
  onTestFinished(drop);
  const billing = createBilling({ postgres, priceOf: () => undefined, log });
  const [metrics, clock] = [new Metrics(), new ManualClock()];
  const watch = watchVerifications(billing, { metrics, log, clock });
  onTestFinished(() => watch.stop());
  const figureOf = (name: string) =>
    new RegExp(`^${name} (\\S+)$`, "m").exec(render(snapshotOf(metrics)))?.[1];
  const store = (violations: number, at: string) =>
    query(
      postgres,
      {
        name: "",
        text: `insert into verifications
          (verification_id, started_at, ended_at, started_by, violation_count, violations)
          values ('ver_' || $2, $2::timestamptz, $2::timestamptz, 'test', $1, '[]')`,
      },
      [violations, at],
    );

  await clock.advance(60_000);
  expect(figureOf("gateway_ledger_violations")).toBeUndefined();
  for (const [violations, at] of [
    [3, "2026-11-01T00:00:00Z"],
    [0, "2026-11-02T00:00:00Z"],
  ] as const) {
    await store(violations, at);
    await passUntil(
      () => clock.advance(60_000),
      () => {
        expect(figureOf("gateway_ledger_violations")).toBe(String(violations));
        expect(figureOf("gateway_ledger_verified_seconds")).toBe(String(Date.parse(at) / 1000));
      },
    );
  }
});
