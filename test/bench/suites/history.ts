// A ledger with twenty months of charges against one with a single month: the speed of settling, of
// a month's report and of a balance.

import { create } from "@bufbuild/protobuf";
import { timestampFromDate } from "@bufbuild/protobuf/wkt";
import { GetPoolsRequestSchema } from "../../../gen/gateway/billing/v1/billing_pb.ts";
import { Bucket, QueryUsageRequestSchema } from "../../../gen/gateway/usage/v1/usage_pb.ts";
import { environmentToken } from "../../../src/contract/contract.ts";
import { callBy } from "../../support/calls.ts";
import { addAccounts, addKeys, connectLedger, findViolations, sumCharges } from "../books.ts";
import { addMonths, chargesPerMonth, hoursPerMonth, keysCount } from "../charges.ts";
import { Lab } from "../lab.ts";
import { quantile, spreadOf } from "../measure.ts";
import { chargeMicroOfPair, startPairs } from "../pairs.ts";
import type { Result } from "../report.ts";

const accounts = 100;
const months = 20;
/**
 * Time to write the history: the part of the ten minutes of all suites that the earlier ones and
 * the measurements of this one leave.
 */
const fillMsMax = () => Math.max(30_000, 440_000 - performance.now());
const rounds = 4;
const pairs = 10_000;
const reports = 600;
const operatorOf = (accountId: string) => callBy(environmentToken, { accountId });

export async function history(): Promise<Result> {
  await using lab = new Lab();
  const small = await openSite(lab, "history_small");
  const large = await openSite(lab, "history_large");
  const msMax = fillMsMax();
  await small.fill(1, msMax);
  const filled = await large.fill(months, msMax);

  type Figures = Awaited<ReturnType<typeof small.measure>>;
  const all: { small: Figures; large: Figures }[] = [];
  for (let round = 0; round <= rounds; round++) {
    const one = { small: await small.measure(round), large: await large.measure(round) };
    if (round > 0) all.push(one);
  }
  const faults = [...(await small.close(1)), ...(await large.close(filled))];
  const grown = (figure: (one: Figures) => number) =>
    spreadOf(all.map((one) => figure(one.large) / figure(one.small)));
  const inLarge = (figure: (one: Figures) => number) =>
    spreadOf(all.map((one) => figure(one.large)));
  const million = (count: number) => (count / 1e6).toFixed(1);
  const from = `${million(filled * chargesPerMonth)}M ÷ ${million(chargesPerMonth)}M charges`;
  return {
    rows: [
      {
        measure: `hold + settle pairs/s, ${from}`,
        value: grown((one) => one.perSecond),
        must: "≥ 0.90",
      },
      {
        measure: "month report, p99, the same",
        value: grown((one) => one.reportP99),
        must: "≤ 1.5",
      },
      { measure: "month report, p50, the same", value: grown((one) => one.reportP50) },
      { measure: "balance read, p99, the same", value: grown((one) => one.balanceP99) },
      {
        measure: "hold + settle pairs/s, large",
        value: inLarge((one) => one.perSecond),
        unit: "/s",
      },
      {
        measure: "month report by day, p99, large",
        value: inLarge((one) => one.reportP99),
        unit: "ms",
      },
      { measure: "balance read, p99, large", value: inLarge((one) => one.balanceP99), unit: "ms" },
    ],
    notes:
      filled < months
        ? [
            `scaled down: ${filled} of ${months} months were written in ${Math.round(msMax / 1000)} s`,
          ]
        : [],
    faults,
  };
}

/** A database of its own with a ledger on it. */
async function openSite(lab: Lab, name: string) {
  const postgres = connectLedger(await lab.emptyDatabase(name));
  await addAccounts(postgres, accounts);
  await addKeys(postgres, keysCount, accounts);
  const ledger = await startPairs(postgres);
  let settled = 0;
  const now = new Date();
  const from = timestampFromDate(new Date(now.getTime() - hoursPerMonth * 3_600_000));
  const keyOf = (pair: number) => {
    const key = (pair * 7919) % keysCount;
    return { accountId: `acc_${(key % accounts) + 1}`, keyId: `key_${key + 1}` };
  };

  /** Milliseconds of each of some calls, one after the other. */
  async function timeEach(
    count: number,
    run: (accountId: string) => Promise<unknown>,
  ): Promise<number[]> {
    const each: number[] = [];
    for (let call = 0; call < count; call++) {
      const started = performance.now();
      await run(`acc_${((call * 37) % accounts) + 1}`);
      each.push(performance.now() - started);
    }
    return each;
  }

  return {
    fill: (count: number, msMax: number) =>
      addMonths(postgres, { months: count, before: now, msMax }),
    async measure(round: number) {
      const count = round === 0 ? pairs / 4 : pairs;
      const { perSecond } = await ledger.run({ count, width: 500, keyOf });
      settled += count;
      const reportMs = await timeEach(reports, (accountId) =>
        ledger.service.queryUsage(
          create(QueryUsageRequestSchema, { startAt: from, bucket: Bucket.DAY }),
          operatorOf(accountId),
        ),
      );
      const balanceMs = await timeEach(reports, (accountId) =>
        ledger.service.getPools(create(GetPoolsRequestSchema), operatorOf(accountId)),
      );
      return {
        perSecond,
        reportP50: quantile(reportMs, 0.5),
        reportP99: quantile(reportMs, 0.99),
        balanceP99: quantile(balanceMs, 0.99),
      };
    },
    /** Stops the ledger, of which `filled` months were written here, and verifies it. */
    async close(filled: number): Promise<string[]> {
      await ledger.stop();
      const faults = await findViolations(postgres);
      const charged = await sumCharges(postgres);
      const expected = BigInt(filled * chargesPerMonth + settled) * chargeMicroOfPair;
      if (charged !== expected)
        faults.push(`${name}: charged ${charged} micro-credits instead of ${expected}`);
      await postgres.close();
      return faults;
    },
  };
}
