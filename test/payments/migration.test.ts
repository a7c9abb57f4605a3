// What the migration makes of payments on chains that an older program stored.

import { Client } from "pg";
import { expect, onTestFinished, test } from "vitest";
import { migrate, readMigrations } from "../../src/postgres/migrate.ts";
import { emptyDatabase } from "../support/database.ts";

const own = readMigrations();
const before = own.slice(
  0,
  own.findIndex(({ name }) => name.endsWith("_coins")),
);
const tx = (digit: string) => digit.repeat(64);
const evm = `0x${"a".repeat(40)}`;

async function migrated(rows: string) {
  const { url, drop } = await emptyDatabase();
  await migrate(url, { migrations: before });
  const client = new Client({ connectionString: url });
  await client.connect();
  onTestFinished(async () => {
    await client.end();
    await drop();
  });
  await client.query(`
    insert into deposit_addresses (key_id, index, address, account_id, "family")
    values ('k', 0, '${evm}', 'acc_a', 'v1'), ('b', 0, 'bc1q', 'acc_a', 'v1');
    insert into chains (processor, chain, height, hash)
    values ('onchain', 'base', 100, 'h100'), ('onchain', 'bitcoin', 50, 'b50');
    insert into address_balances values ('onchain', 'base', '${evm}', 700, 0, 100, now());
    insert into payment_orders (order_id, account_id, "family", idempotency_key, usd_micro,
      processor, method, asset, network, decimals, external_id, quoted_atoms, rate, state,
      handled, created_by, seller_name, seller_address, seller_tax_id, buyer_name, buyer_address,
      buyer_tax_id, quoted_until, watched_until, pay_to, memo, checkout_url)
    select 'ord_' || n, 'acc_a', 'v1', 'key_' || n, 5000000, 'onchain', 'm', 'USDC', 'base', 6,
      'base:ord_' || n, 5000000, 1000000, 'open',
      case when n = 1 then array['late:base:0x${tx("1")}:0', 'swept'] else '{}' end,
      'test', '', '', '', '', '', '', now(), now(), '', '', ''
    from generate_series(1, 3) n`);
  await client.query(rows);
  await migrate(url);
  return async (text: string) => (await client.query(text)).rows;
}

const payment = (id: string, of: Record<string, string>) => {
  const row: Record<string, string> = {
    processor: "'onchain'",
    external_id: `'${id}'`,
    chain: "'base'",
    address: `'${evm}'`,
    asset: "'USDC'",
    decimals: "6",
    atoms: "3000000",
    state: "'settled'",
    height: "90",
    hash: "'h90'",
    first_seen_at: "now()",
    order_id: "'ord_1'",
    ...of,
  };
  return `insert into chain_payments (${Object.keys(row).join(", ")})
    values (${Object.values(row).join(", ")});`;
};
const deposit = (id: string, order: string, atoms: string) => `
  insert into payment_deposits (processor, external_id, order_id, account_id, "family", asset,
    network, decimals, atoms, usd_micro, valued_by, state, first_seen_at, settled_at)
  values ('onchain', '${id}', '${order}', 'acc_a', 'v1', 'USDC', 'base', 6, ${atoms}, ${atoms},
    'quote', 'settled', now(), now());`;

test("payments get the names of what they are, with their deposits and what persons decided", async () => {
  const [one, two] = [`base:0x${tx("1")}:0`, `base:0x${tx("2")}:3`];
  const bitcoin = { chain: "'bitcoin'", address: "'bc1q'", asset: "'BTC'", hash: "'b40'" };
  const run = await migrated(
    payment(one, {}) +
      payment(two, { atoms: "2000000" }) +
      deposit(one, "ord_1", "3000000") +
      deposit(two, "ord_1", "2000000") +
      payment(`${tx("3")}:0`, { ...bitcoin, order_id: "'ord_2'", spends: "'{x:0}'" }) +
      payment(`base:${evm}:95`, { asset: "'ETH'", height: "95", hash: "'h95'" }) +
      `insert into payment_decisions (decision_id, order_id, kind, facts, deposit_ids, micros,
         reason, decided_by)
       values ('d1', 'ord_1', 'grant', array['late:${one}'], array['${one}'], array[5], 'r', 'p');`,
  );
  const name = `base:h90:${evm}:USDC`;
  expect(
    await run("select external_id, atoms, transactions from chain_payments order by external_id"),
  ).toEqual(
    [
      { external_id: `${tx("3")}:bc1q`, atoms: "3000000", transactions: 1 },
      { external_id: name, atoms: "5000000", transactions: 2 },
      { external_id: `base:h95:${evm}:ETH`, atoms: "3000000", transactions: 0 },
    ].toSorted((a, b) => (a.external_id < b.external_id ? -1 : 1)),
  );
  expect(await run("select external_id, atoms, usd_micro::text from payment_deposits")).toEqual([
    { external_id: name, atoms: "5000000", usd_micro: "5000000" },
  ]);
  expect(await run("select facts, deposit_ids from payment_decisions")).toEqual([
    { facts: [`late:${name}`], deposit_ids: [name] },
  ]);
  expect(await run("select handled from payment_orders where order_id = 'ord_1'")).toEqual([
    { handled: [`late:${name}`, "swept"] },
  ]);
  const found = await run("select tx, external_id from payment_transactions order by tx");
  expect(found).toEqual([
    { tx: `0x${tx("1")}`, external_id: name },
    { tx: `0x${tx("2")}`, external_id: name },
    { tx: tx("3"), external_id: `${tx("3")}:bc1q` },
  ]);
});

test("two payments of one block in two orders stay two, and what waited is dust", async () => {
  const ids = [4, 5, 6, 7].map((digit) => `base:0x${tx(String(digit))}:0`);
  const [first = "", second = "", small = "", above = ""] = ids;
  const run = await migrated(
    payment(first, {}) +
      payment(second, { order_id: "'ord_2'" }) +
      payment(small, { order_id: "null", atoms: "300000", height: "80", hash: "'h80'" }) +
      payment(above, { order_id: "null", atoms: "400000", height: "101", hash: "'h101'" }) +
      payment(`base:${evm}:99`, {
        ...{ asset: "'ETH'", decimals: "18", atoms: "200", market_rate: "1" },
        ...{ order_id: "null", height: "99", hash: "'h99'" },
      }),
  );
  expect(await run("select external_id from chain_payments order by 1")).toEqual(
    [first, second].map((external_id) => ({ external_id })),
  );
  expect(await run("select height::int, atoms from address_dust")).toEqual([
    { height: 80, atoms: "300000" },
  ]);
  expect(await run("select atoms from address_balances")).toEqual([{ atoms: "500" }]);
});

test("a payment whose block the chain left is lost, and its order is looked at", async () => {
  const run = await migrated(
    payment(`base:0x${tx("8")}:0`, { height: "null", hash: "null", missing_since: "now()" }),
  );
  expect(await run("select state from chain_payments")).toEqual([{ state: "lost" }]);
  const [order] = await run(
    "select hook_at is not null as due from payment_orders where order_id = 'ord_1'",
  );
  expect(order).toEqual({ due: true });
});

test("documents go on with their numbers under the id of the seller, and dust asks nobody", async () => {
  const run = await migrated(`
    update payment_orders set attention = 'dust', seller_name = 'X (simulated, no real money)'
    where order_id = 'ord_1';
    update payment_orders set attention = 'lost' where order_id = 'ord_2';
    insert into payment_numbers (seller, kind, year, last) values ('Old name', 'receipt', 2026, 7),
      ('New name', 'receipt', 2026, 3), ('X (simulated, no real money)', 'receipt', 2026, 9);`);
  expect(await run("select seller_id, attention from payment_orders order by order_id")).toEqual([
    { seller_id: "simulated:main", attention: null },
    { seller_id: "main", attention: "lost" },
    { seller_id: "main", attention: null },
  ]);
  expect(
    await run("select seller, last from payment_numbers where seller like '%main' order by 1"),
  ).toEqual([
    { seller: "main", last: 7 },
    { seller: "simulated:main", last: 9 },
  ]);
});
