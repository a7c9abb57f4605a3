// A ledger with charges of past months, as the commands and tasks of its history see it.

import { afterEach } from "vitest";
import type { Payer } from "../../src/billing/admission.ts";
import { openLedger } from "../../src/postgres/open-ledger.ts";
import { endingWith, log } from "./ledger.ts";
import { freshUsage } from "./usage.ts";

export type FreshHistory = Awaited<ReturnType<typeof freshHistory>>;

/** No day and no month is closed unless a test does it. `ledger` has the role of the gateway. */
export async function freshHistory() {
  const usage = await freshUsage();
  const ledger = await openLedger({ url: usage.url, ownerUrl: undefined }, log);
  /** The middle of the month that is `count` months ago. */
  const monthsAgo = (count: number) =>
    new Date(Date.UTC(usage.today.getUTCFullYear(), usage.today.getUTCMonth() - count, 15, 12));
  return {
    ...usage,
    ledger,
    monthsAgo,
    /** The month that is `count` months ago, `YYYY-MM-01`. */
    month: (count: number) => `${monthsAgo(count).toISOString().slice(0, 7)}-01`,
    /** A request that was admitted in the month that is `count` months ago. */
    chargeAgo: (payer: Payer, count: number, output = 1, model = "model-test") =>
      usage.chargeAt(payer, monthsAgo(count), endingWith({ output, input: 3 }), { model }),
    async close() {
      await ledger.postgres.close();
      await usage.close();
    },
  };
}

/** As `freshHistory`, closed after the test. */
export function historyOfTest(): () => Promise<FreshHistory> {
  const opened: FreshHistory[] = [];
  afterEach(async () => {
    for (const one of opened.splice(0)) await one.close();
  });
  return async () => {
    const history = await freshHistory();
    opened.push(history);
    return history;
  };
}
