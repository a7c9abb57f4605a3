// What admissions and settlements read among a million payers: the pages of a thousand, and one
// level more of each index that they look up in.

import { Client } from "pg";
import { afterAll, beforeAll, expect, test } from "vitest";
import * as sql from "../../gen/sql/billing.ts";
import { admissionBatch, settlementBatch } from "../../src/billing/ledger-batches.ts";
import { isSkipped, type Query } from "../../src/postgres/statement.ts";
import { endingWith, freshLedger, holdRequest } from "../support/ledger.ts";
import { costOf } from "../support/plans.ts";

let ledger: Awaited<ReturnType<typeof freshLedger>>;
let client: Client;
beforeAll(async () => {
  ledger = await freshLedger();
  client = new Client({ connectionString: ledger.url });
  await client.connect();
});
afterAll(async () => {
  await client.end();
  await ledger.close();
});

/** Accounts up to `to`, each with a key and the person who manages it: two payers with limits. */
async function addPayers(from: number, to: number): Promise<void> {
  for (const text of [
    "insert into accounts (account_id, name) select 'acc_' || n, '' from $ n",
    "insert into pools (account_id, family, posted) select 'acc_' || n, 'v1', 1000000000 from $ n",
    `insert into keys (key_id, account_id, family, name, managed_by)
       select 'key_' || n, 'acc_' || n, 'v1', '', 'person:per_' || n from $ n`,
    `insert into budgets (account_id, family, payer, day_limit, running_limit)
       select 'acc_' || n, 'v1', payer, 1000000000, 1000
       from $ n cross join lateral (values ('key_' || n), ('person:per_' || n)) as of (payer)`,
    "vacuum analyze accounts, pools, keys, budgets",
  ])
    await client.query(text.replace("$", `generate_series(${from}, ${to})`));
}

/** Pages by statement that the admission and the settlement of a request read. */
async function pagesOfPair(n: number): Promise<ReadonlyMap<string, number>> {
  const payer = { accountId: `acc_${n}`, family: "v1", keyId: `key_${n}` } as const;
  const asked = holdRequest(payer, 100);
  const settled = await ledger.holds.place(asked, new AbortController().signal);
  const pools = { accountIds: [payer.accountId], families: [payer.family] };
  const [clock, pool, keys] = await ledger.postgres.transaction(async (tx) => [
    await tx.run(sql.nodeClock, { nodeId: ledger.node.id() }),
    await tx.run(sql.lockPools, pools),
    await tx.run(sql.readKeys, { keyIds: [payer.keyId] }),
  ]);
  const request = { ...holdRequest(payer, 100), nonce: "nonce" };
  const place = { ...request, kind: "place", owner: "process" } as const;
  const admission = admissionBatch([place], ledger.node.id(), expect.unreachable);
  const { writes } = admission.decide(
    [[clock], pool, [], [], [], keys, []].map((rows) => ({
      ...{ rows, command: "SELECT", rowCount: rows.length, oid: 0, fields: [] },
    })),
  );
  const settlement = settlementBatch([
    { kind: "settle", hold: settled, ending: endingWith({ output: 100 }) },
  ]);
  await client.query("begin");
  const pages = new Map<string, number>();
  for (const query of [...admission.reads, ...writes, ...settlement.queries].filter(isSent)) {
    const cost = await costOf(client, query);
    expect([query[0].name, cost.scanned]).toEqual([query[0].name, []]);
    pages.set(query[0].name, cost.pages);
  }
  await client.query("rollback");
  return pages;
}

const isSent = (query: Query) => !isSkipped(query);

test("a million payers cost a statement a page more for each look-up", async () => {
  await addPayers(1, 500);
  const few = await pagesOfPair(321);
  await addPayers(501, 500_000);
  const many = await pagesOfPair(321_321);
  expect([...few.keys()]).toEqual(
    expect.arrayContaining(["billing/add-to-budgets", "billing/settle-hold"]),
  );
  // `ReadKeys` has the most look-ups: of the key, of its budget, and of its manager's.
  const more = [...many].map(([name, pages]) => [name, pages - (few.get(name) ?? 0)] as const);
  expect(more.filter(([, pages]) => pages > 3)).toEqual([]);
}, 600_000);
