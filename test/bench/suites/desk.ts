// The search of an operator's desk among 200,000 accounts and a million orders: each kind of text
// again and again, with other numbers. The suite writes about 3 GB, so it runs only when it is
// named. BENCH_ORDERS asks for fewer orders, and a fifth as many accounts.

import { create } from "@bufbuild/protobuf";
import { Client } from "pg";
import { SearchRequestSchema } from "../../../gen/gateway/operations/v1/operations_pb.ts";
import { createOverview } from "../../../src/billing/overview.ts";
import { createLedgerStore } from "../../../src/billing/store.ts";
import { search } from "../../../src/operations/search.ts";
import { asOperator, deskTexts, writeDesk, writeRequests } from "../../support/desk.ts";
import { connectLedger } from "../books.ts";
import { Lab } from "../lab.ts";
import { quantile } from "../measure.ts";
import { type Result, single } from "../report.ts";

const orders = Number(process.env.BENCH_ORDERS ?? 1_000_000);
const accounts = orders / 5;
const rounds = 100;

/** Each with the number of hits that it must have. `n`: of an account or a paid order. */
const texts: Readonly<Record<string, readonly [(n: number) => string, number]>> = {
  "id of an account": [deskTexts.accountId, 1],
  "id of an order": [deskTexts.orderId, 1],
  receipt: [deskTexts.receipt, 1],
  transfer: [deskTexts.transferId, 1],
  login: [deskTexts.personLogin, 1],
  hash: [deskTexts.hash, 1],
  "id of a request": [(n) => deskTexts.requestId(n, 0), 1],
  "id of an older request": [(n) => deskTexts.requestId(n, 6), 0],
  "words of a name": [(n) => `desk ${n}`, 1],
  "word of every name": [() => "customer", 20],
  "one character": [() => "c", 20],
  "nothing of ours": [(n) => `ff${n}`.padEnd(64, "0"), 0],
};

export async function desk(): Promise<Result> {
  await using lab = new Lab();
  const url = await lab.emptyDatabase("desk");
  const postgres = connectLedger(url);
  const client = new Client({ connectionString: url });
  await client.connect();
  const filling = performance.now();
  await writeDesk(client, { accounts, orders });
  await writeRequests(client, accounts);
  const fillSeconds = (performance.now() - filling) / 1000;
  const { reports } = postgres;
  const { findRequests } = createOverview(createLedgerStore(postgres));
  const parts = { reports, findRequests, file: () => ({ models: [], aliases: {} }) };
  const faults: string[] = [];
  const all: number[] = [];
  const rows: Result["rows"][number][] = [];
  for (const [name, [textOf, expected]] of Object.entries(texts)) {
    const took: number[] = [];
    for (let round = 0; round < rounds; round++) {
      // Paid: every third one. Six digits, so that none begins another one.
      const n = 3 * Math.floor(accounts / 6 + (round * accounts) / (6 * rounds));
      const query = textOf(n);
      const began = performance.now();
      const { hits } = await search(
        parts,
        create(SearchRequestSchema, { query, allAccounts: true }),
        asOperator,
      );
      took.push(performance.now() - began);
      if (hits.length !== expected && (expected !== 1 || hits.length === 0))
        faults.push(`${name} ${query}: ${hits.length} hits of ${expected}`);
    }
    all.push(...took);
    rows.push({
      measure: `search by ${name}, p95 of ${rounds}`,
      value: single(quantile(took, 0.95)),
      unit: "ms",
    });
  }
  rows.push({
    measure: "search of any kind, p95",
    value: single(quantile(all, 0.95)),
    unit: "ms",
    must: "≤ 200",
  });
  await client.end();
  await postgres.close();
  return {
    rows,
    notes: [`${accounts} accounts and ${orders} orders, written in ${Math.round(fillSeconds)} s`],
    faults: faults.slice(0, 5),
  };
}
