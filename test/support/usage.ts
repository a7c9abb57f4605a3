// Reports over a ledger whose requests were admitted at chosen times, without a gateway around it.

import { create, type MessageInitShape } from "@bufbuild/protobuf";
import { timestampDate, timestampFromDate } from "@bufbuild/protobuf/wkt";
import {
  type QueryUsageRequestSchema,
  type QueryUsageResponse,
  QueryUsageRequestSchema as requestSchema,
  type UsageRow,
} from "../../gen/gateway/usage/v1/usage_pb.ts";
import { newRequestId } from "../../src/base/ids.ts";
import { reportRowsMax } from "../../src/base/shown-figures.ts";
import { noTags, type Tags } from "../../src/base/tags.ts";
import type { Payer } from "../../src/billing/admission.ts";
import { createBilling } from "../../src/billing/billing.ts";
import type { Ending } from "../../src/billing/settlement.ts";
import type { Scope } from "../../src/billing/usage.ts";
import { createReports } from "../../src/billing/usage.ts";
import { UsageDays } from "../../src/billing/usage-days.ts";
import { freshLedger, log, price } from "./ledger.ts";

export const dayMs = 24 * 3_600_000;
export type Question = Exclude<
  MessageInitShape<typeof QueryUsageRequestSchema>,
  { $typeName: string }
>;

type HoldOptions = {
  readonly amountMicro?: bigint;
  readonly model?: string;
  readonly tags?: Tags;
};

/** `days` does nothing by itself: no day is closed unless a test runs it. */
export async function freshUsage() {
  const openedMs = Date.now();
  const ledger = await freshLedger();
  const reports = createReports(ledger.postgres.reports);
  const days = new UsageDays(ledger.postgres, log);
  const { service } = createBilling({
    postgres: ledger.postgres,
    priceOf: () => price,
    log,
  });
  const [row] = await ledger.run<{ today: Date }>(
    "select date_trunc('day', now(), 'UTC') as today",
  );
  if (!row) throw new Error("no time");

  /** A hold as an admission at that time made it. */
  async function holdAt(
    payer: Payer,
    at: Date,
    { amountMicro = 1_000_000n, model = "model-test", tags = noTags }: HoldOptions = {},
  ) {
    const month = `${at.toISOString().slice(0, 7)}-01`;
    const requestId = newRequestId();
    await ledger.run(
      `do $$ begin
         if to_regclass('charges_${month.slice(0, 7).replace("-", "_")}') is null then
           create table charges_${month.slice(0, 7).replace("-", "_")} partition of charges
             for values from ('${month}') to ('${month}'::date + interval '1 month');
         end if;
       end $$`,
    );
    const { accountId, family, keyId } = payer;
    const added =
      "set held = held + $3, running = running + 1 where account_id = $1 and family = $2";
    await ledger.run(`update pools ${added}`, [accountId, family, amountMicro]);
    const [managed] = await ledger.run<{ payer: string }>(
      `select b.payer from keys k join budgets b using (account_id, family)
       where k.key_id = $1 and b.payer = k.managed_by and b.is_limited`,
      [keyId],
    );
    const manager = managed?.payer ?? null;
    await ledger.run(`update budgets ${added} and payer in ($4, $5)`, [
      ...[accountId, family, amountMicro],
      ...[keyId, manager],
    ]);
    await ledger.store.registerPrice("model-test", price);
    await ledger.run(
      `insert into holds (account_id, request_id, family, key_id, model, month, amount,
         granted_output, price_version, nonce, admitted_at, deadline, tags, manager)
       values ($1, $2, $3, $4, $5, $6, $7, 1000000, $8, 'nonce', $9, now() + interval '1 hour',
         nullif($10::jsonb, '{}'), $11)`,
      [
        payer.accountId,
        requestId,
        payer.family,
        payer.keyId,
        model,
        month,
        amountMicro,
        price.priceVersion,
        at,
        JSON.stringify(tags),
        manager,
      ],
    );
    return { accountId: payer.accountId, requestId };
  }

  async function settle(request: { accountId: string; requestId: string }, ending: Ending) {
    const stored = await ledger.store.findHold(request);
    if (!stored) throw new Error("no such hold");
    return ledger.holds.settle(stored.hold, ending);
  }

  return {
    ...ledger,
    days,
    reports,
    service,
    holdAt,
    settle,
    /** A request that was admitted then and has ended. */
    async chargeAt(payer: Payer, at: Date, ending: Ending, options?: HoldOptions) {
      return settle(await holdAt(payer, at, options), ending);
    },
    today: row.today,
    /** `ms` after the begin of that day. Never later today, which may have just begun. */
    daysAgo(count: number, ms = 0) {
      const at = row.today.getTime() - count * dayMs + ms;
      return new Date(count < 0 ? at : Math.min(at, openedMs));
    },
    /** One page of a question, the largest unless it says another size. */
    query: (question: Question, scope: Scope) =>
      reports.queryUsage(create(requestSchema, { pageSize: reportRowsMax, ...question }), scope),
    /** All pages of a question. */
    async queryAll(question: Question, scope: Scope): Promise<QueryUsageResponse[]> {
      const pages: QueryUsageResponse[] = [];
      do {
        const pageToken = pages.at(-1)?.nextPageToken ?? "";
        pages.push(
          await reports.queryUsage(create(requestSchema, { ...question, pageToken }), scope),
        );
      } while (pages.at(-1)?.nextPageToken !== "");
      return pages;
    },
  };
}

/** The sums that reports and charges share, added up. */
export function addUp(rows: readonly UsageRow[]) {
  const sum = { amount: 0n, requests: 0n, input: 0n, output: 0n, thinking: 0n, cached: 0n };
  for (const { sums } of rows) {
    sum.amount += sums?.chargedMicrocredits ?? 0n;
    sum.requests += sums?.requests ?? 0n;
    sum.input += sums?.usage?.input ?? 0n;
    sum.output += sums?.usage?.output ?? 0n;
    sum.thinking += sums?.usage?.thinking ?? 0n;
    const { cacheRead = 0n, cacheWrite1h = 0n, cacheWrite5m = 0n } = sums?.usage ?? {};
    sum.cached += cacheRead + cacheWrite1h + cacheWrite5m;
  }
  return sum;
}

export const stamp = timestampFromDate;

/** The start of the row's bucket. */
export function startOf({ startAt: from }: UsageRow): string {
  return from ? timestampDate(from).toISOString() : "";
}
