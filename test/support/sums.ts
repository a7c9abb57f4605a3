// The sums of an account by every way that shows them: its charges, row by row, and its reports,
// page by page.

import { create } from "@bufbuild/protobuf";
import { timestampFromDate } from "@bufbuild/protobuf/wkt";
import {
  Bucket,
  QueryUsageRequestSchema,
  UsageGroup,
  type UsageSums,
} from "../../gen/gateway/billing/v1/billing_pb.ts";
import { createReports } from "../../src/billing/usage.ts";
import type { Postgres } from "../../src/postgres/postgres.ts";

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
    amountMicro: sums?.amountMicrocredits ?? 0n,
    input: sums?.usage?.input ?? 0n,
    output: sums?.usage?.output ?? 0n,
  };
}

/** What the charges of the account add up to. */
export async function sumCharges(
  { postgres }: { postgres: Postgres },
  accountId: string,
): Promise<Sums> {
  const rows = await postgres.query<Sums>(
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
        from: timestampFromDate(new Date(Date.now() - 24 * 3_600_000)),
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
