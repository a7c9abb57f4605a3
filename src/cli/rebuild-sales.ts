// `npm run rebuild-sales`: writes the sums of sales anew from the charges, beside a gateway that
// runs. Reports are not complete until it ends. Exit status: 0 when the sums are whole, 1 if they
// are not; whichever gateway runs then goes on with them.

import { setTimeout as delay } from "node:timers/promises";
import { createLog } from "../base/log.ts";
import { SalesRollup } from "../sales/sales.ts";
import { onLedger } from "./ledger.ts";

const pauseMs = 1_000;

await onLedger(async ({ postgres }) => {
  const startedMs = performance.now();
  const rollup = new SalesRollup({ postgres, log: createLog("warn") });
  const charges = await rollup.rebuild(() => delay(pauseMs));
  const seconds = (performance.now() - startedMs) / 1_000;
  const rate = Math.round(Number(charges) / seconds);
  console.log(`the sums of sales have ${charges} charges: ${seconds.toFixed(1)} s, ${rate}/s`);
});
