// The findings of the last check of the ledger, as metrics. A check stores its result, so that the
// alert needs no file of the machine that ran it.

import type { Clock } from "../base/clock.ts";
import type { Log } from "../base/log.ts";
import { Task, warnOnce } from "../base/task.ts";
import type { Billing } from "../billing/billing.ts";
import type { Metrics } from "../metrics/metrics.ts";

const everyMs = 60_000;

/** Starts to look once a minute. The result has to be stopped. */
export function watchVerifications(
  { overview }: Pick<Billing, "overview">,
  { metrics, log, clock }: { metrics: Metrics; log: Log; clock: Clock | undefined },
): Task {
  let last: { violations: number; endedS: number } | undefined;
  metrics.readOne("gateway_ledger_violations", () => last?.violations);
  metrics.readOne("gateway_ledger_verified_seconds", () => last?.endedS);
  const task = new Task({
    async run() {
      const { latest } = await overview.latestVerification();
      last = latest && {
        violations: latest.violationCount,
        endedS: latest.endedAt.getTime() / 1000,
      };
    },
    everyMs,
    clock,
    report: warnOnce(log, {
      code: "background_task_failed",
      failed: "the result of the last check of the ledger cannot be read",
    }),
  });
  task.start();
  return task;
}
