// The search of an operator's desk among 200,000 accounts and a million orders, and the palette on
// the pages of an account with 5,000 keys: each kind of text again and again, with other numbers.
// The suite writes about 3 GB, so it runs only when it is named. BENCH_ORDERS asks for fewer
// orders, and a fifth as many accounts.

import { create } from "@bufbuild/protobuf";
import { Client } from "pg";
import { CallersSchema } from "../../../gen/gateway/common/v1/options_pb.ts";
import { AccountRole, OperatorRole } from "../../../gen/gateway/common/v1/roles_pb.ts";
import { SearchRequestSchema } from "../../../gen/gateway/operations/v1/operations_pb.ts";
import { createOverview } from "../../../src/billing/overview.ts";
import { createLedgerStore } from "../../../src/billing/store.ts";
import type { Person } from "../../../src/contract/contract.ts";
import { search } from "../../../src/operations/search.ts";
import {
  asOperator,
  deskTexts,
  writeDesk,
  writeManyKeys,
  writeRequests,
} from "../../support/desk.ts";
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

const manyKeys = 5_000;
/** It has them. */
const largeAccount = deskTexts.accountId(7);
const numberOfKey = (n: number) => String(1 + (n % manyKeys)).padStart(4, "0");

/** The same of what the palette asks on a page of that account. */
const paletteTexts: typeof texts = {
  "name of its last key": [() => "zz-last", 1],
  "word of every key": [() => "key", 20],
  "part of a word in another script": [() => "产环", 20],
  hint: [(n) => `sk-gw2-900${numberOfKey(n)}…${numberOfKey(n)}`, 1],
  "id of a key": [(n) => `key_many_${Number(numberOfKey(n))}`, 1],
  "one character": [() => "k", 20],
  "name of nothing": [(n) => `nothing ${n}`, 0],
};

const owner: Person = {
  ...{ kind: "person", personId: "per_of_bench", sessionId: "ses_of_bench" },
  memberships: [{ accountId: largeAccount, role: AccountRole.OWNER }],
  ...{ operator: OperatorRole.UNSPECIFIED, strongUntil: undefined },
};
const asOwner = {
  allowed: create(CallersSchema, { person: AccountRole.VIEWER }),
  ...{ caller: owner, accountId: largeAccount },
};

const asOperatorThere = { ...asOperator, accountId: largeAccount };

/** Who searches where, in which texts, and how long it may take. */
const searches = [
  ["search", texts, { allAccounts: true }, asOperator, 200],
  ["palette of an owner", paletteTexts, { accountId: largeAccount }, asOwner, 100],
  ["palette of an operator", paletteTexts, { accountId: largeAccount }, asOperatorThere, 100],
] as const;

export async function desk(): Promise<Result> {
  await using lab = new Lab();
  const url = await lab.emptyDatabase("desk");
  const postgres = connectLedger(url);
  const client = new Client({ connectionString: url });
  await client.connect();
  const filling = performance.now();
  await writeDesk(client, { accounts, orders });
  await writeRequests(client, accounts);
  await writeManyKeys(client, largeAccount, manyKeys);
  const fillSeconds = (performance.now() - filling) / 1000;
  const { reports } = postgres;
  const { findRequests } = createOverview(createLedgerStore(postgres));
  const parts = { reports, findRequests, file: () => ({ models: [], aliases: {} }) };
  const faults: string[] = [];
  const rows: Result["rows"][number][] = [];
  for (const [who, kinds, place, as, mostMs] of searches) {
    const all: number[] = [];
    for (const [name, [textOf, expected]] of Object.entries(kinds)) {
      const took: number[] = [];
      for (let round = 0; round < rounds; round++) {
        // Paid: every third one. Six digits, so that none begins another one.
        const n = 3 * Math.floor(accounts / 6 + (round * accounts) / (6 * rounds));
        const query = textOf(n);
        const began = performance.now();
        const { hits } = await search(parts, create(SearchRequestSchema, { query, ...place }), as);
        took.push(performance.now() - began);
        if (hits.length !== expected && (expected !== 1 || hits.length === 0))
          faults.push(`${who} by ${name} ${query}: ${hits.length} hits of ${expected}`);
      }
      all.push(...took);
      rows.push({
        measure: `${who} by ${name}, p95 of ${rounds}`,
        value: single(quantile(took, 0.95)),
        unit: "ms",
      });
    }
    rows.push({
      measure: `${who} of any kind, p95`,
      value: single(quantile(all, 0.95)),
      unit: "ms",
      must: `≤ ${mostMs}`,
    });
  }
  await client.end();
  await postgres.close();
  return {
    rows,
    notes: [
      `${accounts} accounts, ${orders} orders and an account with ${manyKeys} keys, written in ` +
        `${Math.round(fillSeconds)} s`,
    ],
    faults: faults.slice(0, 5),
  };
}
