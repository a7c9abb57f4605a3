// The roll-up of a day of ten million charges with two tags each: its hours to its day, and its
// charges to its tags. A fifth of them is of one account. The suite writes about 6 GB, so it runs
// only when it is named. BENCH_CHARGES asks for fewer charges.

import { createLog } from "../../../src/base/log.ts";
import { UsageDays } from "../../../src/billing/usage-days.ts";
import { connectLedger, runSql } from "../books.ts";
import { Lab } from "../lab.ts";
import { watchLongest } from "../longest.ts";
import { type Result, single } from "../report.ts";
import { addDay, addHistoryAccounts } from "../usage-history.ts";

const charges = Number(process.env.BENCH_CHARGES ?? 10_000_000);

export async function days(): Promise<Result> {
  await using lab = new Lab();
  const postgres = connectLedger(await lab.emptyDatabase("days"));
  await addHistoryAccounts(postgres);
  const filling = performance.now();
  const day = await addDay(postgres, charges);
  const fillSeconds = (performance.now() - filling) / 1000;
  const watch = watchLongest(postgres);
  const began = performance.now();
  await new UsageDays(postgres, createLog("silent")).run();
  const seconds = (performance.now() - began) / 1000;
  const longest = watch.stop();
  const sums = await runSql<{ name: string; requests: number }>(
    postgres,
    `select 'days' as name, sum(requests)::int as requests from usage_daily where day = $1
     union all
     select tag, sum(requests)::int from tags_daily where day = $1 group by tag`,
    [day],
  );
  await postgres.close();
  const faults = ["days", "user", "team"].flatMap((name) => {
    const found = sums.find((one) => one.name === name)?.requests ?? 0;
    return found === charges ? [] : [`${name}: ${found} requests of ${charges}`];
  });
  const million = (charges / 1e6).toFixed(1);
  return {
    rows: [
      {
        measure: `writing the day and the tags of ${million}M charges, with its rests`,
        value: single(seconds),
        unit: "s",
      },
      { measure: "the longest transaction of it", value: single(longest), unit: "s", must: "≤ 10" },
    ],
    notes: [`written in ${Math.round(fillSeconds)} s`],
    faults,
  };
}
