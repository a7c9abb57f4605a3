// The sums of an account by every way that shows them: its charges, row by row, in pages and as
// CSV, and its reports, page by page.

import { create } from "@bufbuild/protobuf";
import { timestampFromDate } from "@bufbuild/protobuf/wkt";
import {
  Bucket,
  ExportChargesRequestSchema,
  ListChargesRequestSchema,
  QueryUsageRequestSchema,
  UsageGroup,
  type UsageSums,
} from "../../gen/gateway/usage/v1/usage_pb.ts";
import { parseCredits } from "../../src/base/money.ts";
import { listCharges } from "../../src/billing/charges.ts";
import { exportCharges } from "../../src/billing/export-charges.ts";
import { createLedgerStore } from "../../src/billing/store.ts";
import { createReports } from "../../src/billing/usage.ts";
import type { Postgres } from "../../src/postgres/postgres.ts";
import { query } from "./query.ts";

export type Sums = {
  readonly requests: bigint;
  readonly amountMicro: bigint;
  readonly input: bigint;
  readonly output: bigint;
};

const nothing: Sums = { requests: 0n, amountMicro: 0n, input: 0n, output: 0n };

function add(sums: Sums, more: Sums): Sums {
  return {
    requests: sums.requests + more.requests,
    amountMicro: sums.amountMicro + more.amountMicro,
    input: sums.input + more.input,
    output: sums.output + more.output,
  };
}

function toSums(sums: UsageSums | undefined): Sums {
  return {
    requests: sums?.requests ?? 0n,
    amountMicro: sums?.chargedMicrocredits ?? 0n,
    input: sums?.usage?.input ?? 0n,
    output: sums?.usage?.output ?? 0n,
  };
}

/** What the charges of the account add up to. */
export async function sumCharges(
  { postgres }: { postgres: Postgres },
  accountId: string,
): Promise<Sums> {
  const rows = await query<Sums>(
    postgres,
    {
      name: "",
      text: `select count(*) as requests, coalesce(sum(amount), 0)::bigint as "amountMicro",
          coalesce(sum(input), 0)::bigint as input, coalesce(sum(output), 0)::bigint as output
        from charges where account_id = $1`,
    },
    [accountId],
  );
  return rows.map((row) => ({ ...row })).reduce(add, nothing);
}

/** The totals and the rows of the account's usage by hour, key and model, in small pages. */
export async function sumUsage(
  { postgres }: { postgres: Postgres },
  accountId: string,
): Promise<{ totals: Sums; rows: Sums; pages: number }> {
  const reports = createReports(postgres.reports);
  let [pages, pageToken, rows, totals] = [0, "", nothing, nothing];
  do {
    const page = await reports.queryUsage(
      create(QueryUsageRequestSchema, {
        startAt: timestampFromDate(new Date(Date.now() - 24 * 3_600_000)),
        bucket: Bucket.HOUR,
        groupBy: [UsageGroup.KEY, UsageGroup.MODEL],
        pageSize: 2,
        pageToken,
      }),
      { accountId, onlyKey: undefined },
    );
    if (pages === 0) totals = toSums(page.totals);
    rows = page.rows.map(({ sums }) => toSums(sums)).reduce(add, rows);
    pageToken = page.nextPageToken;
    pages++;
  } while (pageToken !== "");
  return { totals, rows, pages };
}

/** What the receipts of all pages add up to, in pages of a few. */
export async function sumPages(
  { postgres }: { postgres: Postgres },
  accountId: string,
): Promise<Sums> {
  const store = createLedgerStore(postgres);
  let [pageToken, sums] = ["", nothing];
  do {
    const page = await listCharges(
      store,
      create(ListChargesRequestSchema, { pageSize: 7, pageToken }),
      { accountId, onlyKey: undefined },
    );
    for (const { chargedMicrocredits: amountMicro, usage } of page.charges) {
      const { input = 0, output = 0 } = usage ?? {};
      sums = add(sums, {
        requests: 1n,
        amountMicro,
        input: BigInt(input),
        output: BigInt(output),
      });
    }
    pageToken = page.nextPageToken;
  } while (pageToken !== "");
  return sums;
}

/** What the lines of the exported file add up to. */
export async function sumCsv({ postgres }: { postgres: Postgres }, accountId: string) {
  const lines = exportCharges(
    { store: createLedgerStore(postgres), usage: createReports(postgres.reports) },
    create(ExportChargesRequestSchema),
    { accountId, onlyKey: undefined },
    new AbortController().signal,
  );
  let text = "";
  for await (const { csv } of lines) text += csv;
  const [head = [], ...rows] = text
    .split("\r\n")
    .slice(0, -1)
    .map((line) => line.split(","));
  const cell = (row: readonly string[], name: string) => row[head.indexOf(name)] ?? "";
  return rows
    .map(
      (row): Sums => ({
        requests: 1n,
        amountMicro: parseCredits(cell(row, "charge_credits")) ?? -1n,
        input: BigInt(cell(row, "input")),
        output: BigInt(cell(row, "output")),
      }),
    )
    .reduce(add, nothing);
}
