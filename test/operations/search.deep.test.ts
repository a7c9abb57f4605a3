// What a search costs among many accounts and orders: a few pages, and never a whole table.

import { create } from "@bufbuild/protobuf";
import { Client } from "pg";
import { afterAll, beforeAll, expect, test } from "vitest";
import { SearchRequestSchema } from "../../gen/gateway/operations/v1/operations_pb.ts";
import { createOverview } from "../../src/billing/overview.ts";
import { createLedgerStore } from "../../src/billing/store.ts";
import { search } from "../../src/operations/search.ts";
import type { Query } from "../../src/postgres/statement.ts";
import { type FreshDatabase, freshDatabase } from "../support/database.ts";
import { asOperator, deskTexts, writeDesk, writeManyKeys, writeRequests } from "../support/desk.ts";
import { costOf } from "../support/plans.ts";

const pagesMax = 200;
/** It reads each key and member of the account, and no other. */
const pagesInAccountMax = 6_000;
const largeAccount = deskTexts.accountId(7);

let database: FreshDatabase;
let client: Client;
beforeAll(async () => {
  database = await freshDatabase();
  client = new Client({ connectionString: database.url });
  await client.connect();
  await writeDesk(client, { accounts: 200_000, orders: 200_000 });
  await writeRequests(client, 200_000);
  await writeManyKeys(client, largeAccount, 5_000);
}, 300_000);
afterAll(async () => {
  await client.end();
  await database.drop();
});

/** What a search finds, and the statements that it runs. */
async function searched(query: string, accountId?: string) {
  const queries: Query[] = [];
  const { reports } = database.postgres;
  const parts: Parameters<typeof search>[0] = {
    findRequests: createOverview(createLedgerStore(database.postgres)).findRequests,
    file: () => ({ models: [], aliases: {} }),
    reports: {
      transaction: (work) =>
        reports.transaction((tx) =>
          work({
            run(statement, ...parameters) {
              queries.push(statement.with(...parameters));
              return tx.run(statement, ...parameters);
            },
          }),
        ),
    },
  };
  const request = accountId === undefined ? { query, allAccounts: true } : { query, accountId };
  const { hits } = await search(parts, create(SearchRequestSchema, request), {
    ...asOperator,
    accountId: accountId ?? "",
  });
  return { ids: hits.map(({ id }) => id), queries };
}

const n = 123_456;
test.for<[string, string, number | undefined]>([
  ["the id of an account", deskTexts.accountId(n), 1],
  ["the id of an order", deskTexts.orderId(n), 1],
  ["a receipt", deskTexts.receipt(n), 1],
  ["a transfer", deskTexts.transferId(n), 1],
  ["a login", deskTexts.personLogin(n), 1],
  ["a hint", deskTexts.hint(n), undefined],
  ["the beginning of a secret that all keys share", "sk-gw2-1", 10],
  ["the id of an order at its processor", `ext_desk_${String(n).padStart(8, "0")}`, 1],
  ["an amount and its day", "0.00128456 BTC DAY", 1],
  ["a mail address", "mail-00123456@example.com", 1],
  ["a word that begins the names of all", "customer", 20],
  ["one character that begins the names of all", "c", 20],
  ["a word that all names have", "desk", 20],
  ["words of which one is in all names", "desk 123456", 1],
  ["the id of a request of this month", deskTexts.requestId(n, 0), 1],
  ["the id of a request of the third newest month", deskTexts.requestId(n, 2), 1],
  ["the id of an older request that tells no time", deskTexts.requestId(n, 3), 0],
  ["the id of a request of nobody", "req_of_nobody_at_all", 0],
  ["the id of a request that runs", deskTexts.runningId(9_999), 1],
  ["the id of a refused request", deskTexts.refusedId(n), 1],
  ["a hash that nobody has", "ff".repeat(32), 0],
])("%s is found in a few pages", async ([, text, count]) => {
  const { rows } = await client.query<{ day: string }>(
    "select (first_seen_at at time zone 'utc')::date::text as day " +
      "from payment_deposits where order_id = $1",
    [deskTexts.orderId(n)],
  );
  const { ids, queries } = await searched(text.replace("DAY", rows[0]?.day ?? ""));
  if (count !== undefined) expect(ids).toHaveLength(count);
  expect(await pagesOf(text, queries)).toBeLessThanOrEqual(pagesMax);
});

async function pagesOf(text: string, queries: readonly Query[]): Promise<number> {
  expect(queries.length).toBeGreaterThan(0);
  let pages = 0;
  for (const query of queries) {
    const cost = await costOf(client, query);
    expect([text, cost.scanned]).toEqual([text, []]);
    pages += cost.pages;
  }
  return pages;
}

test.for<[string, string, number | undefined]>([
  ["a part of the names of all", "KEY", 20],
  ["the number in a name", "4321", undefined],
  ["two words of names of 60 characters", "größte ñandú", 20],
  ["a word in Greek", "κλειδί", 20],
  ["a word in Han", "密钥", 20],
  ["the last name in the order of its bytes", "zz-last", 1],
  ["a hint", "sk-gw2-900004", undefined],
  ["a text that no name has", "nothing at all", 0],
])("%s is found among the 5,000 keys of an account", async ([, text, count]) => {
  const { ids, queries } = await searched(text, largeAccount);
  if (count !== undefined) expect([text, ids.length]).toEqual([text, count]);
  else expect(ids.length).toBeGreaterThan(0);
  expect(await pagesOf(text, queries)).toBeLessThanOrEqual(pagesInAccountMax);
});
