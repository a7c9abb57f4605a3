// Many accounts, people, keys and orders with what arrived for them, as an operator's desk has
// them after years.

import { createHash } from "node:crypto";
import { create } from "@bufbuild/protobuf";
import type { Client } from "pg";
import { CallersSchema } from "../../gen/gateway/common/v1/options_pb.ts";
import { AdminScope } from "../../gen/gateway/common/v1/roles_pb.ts";
import { environmentToken } from "../../src/contract/contract.ts";
import { writeCharges } from "./charges.ts";

export type DeskSize = { readonly accounts: number; readonly orders: number };

const numbered = (prefix: string) => `'${prefix}' || lpad(n::text, 8, '0')`;
const hashOf = (salt: string) => `encode(sha256(('${salt}' || n)::bytea), 'hex')`;

/** The texts by which the account or order of a number is found. */
export const deskTexts = {
  accountId: (n: number) => `acc_desk_${pad(n)}`,
  orderId: (n: number) => `ord_desk_${pad(n)}`,
  personLogin: (n: number) => `login-${pad(n)}`,
  hint: (n: number) => `sk-gw2-100${pad(n).slice(-4)}…${pad(n).slice(0, 4)}`,
  receipt: (n: number) => `R2026-${pad(n)}`,
  hash: (n: number) =>
    createHash("sha256")
      .update(`dep_desk_${pad(n)}`)
      .digest("hex"),
  transferId: (n: number) => `tra_desk_${pad(n)}`,
  /** Of so many months ago. It tells no time. */
  requestId: (n: number, monthsAgo: number) => `req_desk_${monthsAgo}_${pad(n)}`,
  runningId: (n: number) => `req_runs_${pad(n)}`,
  refusedId: (n: number) => `req_refused_${pad(n)}`,
};

/** A call of somebody who sees every account. */
export const asOperator = {
  allowed: create(CallersSchema, { admin: AdminScope.READ }),
  caller: environmentToken,
  accountId: "",
};

/** Writes keys of an account: names of 60 characters in three scripts, and one that is the last. */
export async function writeManyKeys(client: Client, accountId: string, most: number) {
  await client.query(
    `insert into keys (key_id, account_id, "family", name)
     select 'key_many_' || n, $1, 'v1',
       case when n = 1 then 'zz-last' else left(
         (array['Größte Schlüssel für Ñandú', 'Μεγάλο κλειδί παραγωγής', '生产环境密钥'])[1 + n % 3]
         || ' key ' || n || ' ' || repeat('long ', 20), 60) end
     from generate_series(1, $2::int) n`,
    [accountId, most],
  );
  await client.query(
    `insert into key_secrets (digest, secret_id, key_id, shown)
     select sha256(('many' || n)::bytea), 'sec_many_' || n, 'key_many_' || n,
       'sk-gw2-900' || lpad(n::text, 4, '0') || '…' || lpad(n::text, 4, '0')
     from generate_series(1, $1::int) n`,
    [most],
  );
  await client.query("analyze keys, key_secrets");
}

function pad(n: number): string {
  return String(n).padStart(8, "0");
}

/** Writes them. Each account has an owner and a key, each third order is paid, with a receipt. */
export async function writeDesk(client: Client, { accounts, orders }: DeskSize): Promise<void> {
  const run = (text: string, most: number) =>
    client.query(`insert into ${text} from generate_series(1, ${most}) n`);
  await run(
    `accounts (account_id, name)
     select ${numbered("acc_desk_")}, 'Customer ' || md5(n::text) || ' of the desk ' || n`,
    accounts,
  );
  await run(
    `people (person_id, login, name, email, email_verified_at)
     select ${numbered("per_desk_")}, ${numbered("login-")}, 'Person ' || md5('p' || n),
       ${numbered("mail-")} || '@example.com', now()`,
    accounts,
  );
  await run(
    `members (account_id, person_id, role)
     select ${numbered("acc_desk_")}, ${numbered("per_desk_")}, 'owner'`,
    accounts,
  );
  await run(
    `keys (key_id, account_id, "family", name)
     select ${numbered("key_desk_")}, ${numbered("acc_desk_")}, 'v1', 'key ' || n`,
    accounts,
  );
  await run(
    `key_secrets (digest, secret_id, key_id, shown)
     select sha256(('secret' || n)::bytea), ${numbered("sec_desk_")}, ${numbered("key_desk_")},
       'sk-gw2-100' || right(lpad(n::text, 8, '0'), 4) || '…' || left(lpad(n::text, 8, '0'), 4)`,
    accounts,
  );
  await run(
    `transfers (account_id, transfer_id, "family", kind, amount, posted_after, actor,
       idempotency_key, reason)
     select 'acc_desk_' || lpad((1 + n % ${accounts})::text, 8, '0'), ${numbered("tra_desk_")},
       'v1', 'bonus', 1000000, 1000000, 'token:desk', 'desk-' || n, 'a bonus'`,
    orders,
  );
  const madeAt = "(now() - n * interval '30 seconds')";
  await run(
    `payment_orders (order_id, account_id, "family", idempotency_key, usd_micro, processor, method,
       asset, network, decimals, external_id, quoted_atoms, rate, pay_to, state, created_by,
       created_at, quoted_until, watched_until)
     select ${numbered("ord_desk_")}, 'acc_desk_' || lpad((1 + n % ${accounts})::text, 8, '0'),
       'v1', 'desk-' || n, 5000000 + 5000000 * (n % 20), 'desk', 'desk:btc', 'BTC', 'bitcoin', 8,
       ${numbered("ext_desk_")}, 5000 + n, 100000000000, 'bc1q' || ${hashOf("address")},
       case n % 3 when 0 then 'paid' when 1 then 'expired' else 'closed' end, 'token:desk',
       ${madeAt}, ${madeAt} + interval '15 minutes', ${madeAt} + interval '7 days'`,
    orders,
  );
  // Each third one was paid.
  await client.query(
    `insert into payment_deposits (processor, external_id, order_id, account_id, "family", asset,
       network, decimals, atoms, usd_micro, valued_by, state, first_seen_at, settled_at)
     select 'desk', 'dep' || substr(order_id, 4), order_id, account_id, "family", asset, network,
       decimals, quoted_atoms, usd_micro, 'quote', 'settled', created_at, created_at
     from payment_orders where order_id like 'ord\\_desk\\_%' and state = 'paid'`,
  );
  await client.query(
    `insert into payment_transactions (processor, chain, tx, external_id)
     select processor, network, encode(sha256(external_id::bytea), 'hex'), external_id
     from payment_deposits where processor = 'desk'`,
  );
  await client.query(
    `insert into payment_grants (order_id, n, micro, transfer_id)
     select order_id, 1, usd_micro * 200, 'tra' || substr(order_id, 4)
     from payment_orders where processor = 'desk' and state = 'paid'`,
  );
  await client.query(
    `insert into payment_documents (seller, kind, year, n, number, order_id, issued_at)
     select 'desk', 'receipt', 2026, right(order_id, 8)::integer,
       'R2026-' || right(order_id, 8), order_id, created_at
     from payment_orders where processor = 'desk' and state = 'paid'`,
  );
  await client.query("vacuum analyze");
}

const months = 12;
const running = 10_000;

/** Writes a charge of each account in each of the last months, running and refused requests. */
export async function writeRequests(client: Client, accounts: number): Promise<void> {
  const now = new Date();
  const from = new Date(Date.UTC(now.getUTCFullYear(), now.getUTCMonth() - months + 1, 1));
  const payer = {
    ...{ accountId: "acc_desk_00000001", keyId: "key_desk_00000001", secretId: "" },
    family: "v1" as const,
  };
  // Partitions, and a price.
  const run = (text: string, values?: readonly unknown[]) =>
    client.query(text, [...(values ?? [])]);
  await writeCharges(run, { payer, count: 1, from, stepMs: 1 });
  const kept = `"family", key_id, model, input, output, cache_write_5m, cache_write_1h, cache_read,
    thinking, price_version, granted_output, hold, amount, overrun, output_over, thinking_over,
    outcome, basis`;
  for (let monthsAgo = 0; monthsAgo < months; monthsAgo++)
    await client.query(
      `insert into charges (account_id, request_id, month, admitted_at, settled_at, ${kept})
       select ${numbered("acc_desk_")}, ${numbered(`req_desk_${monthsAgo}_`)}, at::date, at, at,
         ${kept}
       from generate_series(1, $1::int) n
       cross join (
         select date_trunc('month', now() at time zone 'utc') at time zone 'utc'
           - ${monthsAgo} * interval '1 month' as at
       ) m
       cross join (select * from charges limit 1) one`,
      [accounts],
    );
  await client.query(
    `insert into holds (account_id, request_id, "family", key_id, model, month, amount,
       granted_output, price_version, nonce, admitted_at, deadline)
     select ${numbered("acc_desk_")}, ${numbered("req_runs_")}, 'v1', ${numbered("key_desk_")},
       'model-test', date_trunc('month', now())::date, 10, 10, p.price_version, '', now(),
       now() + interval '1 hour'
     from generate_series(1, ${running}) n cross join (select * from price_versions limit 1) p`,
  );
  await client.query(
    `insert into refusals (request_id, account_id, key_id, at, reason)
     select ${numbered("req_refused_")}, ${numbered("acc_desk_")}, ${numbered("key_desk_")}, now(),
       'rate_limited'
     from generate_series(1, ${accounts}) n`,
  );
  await client.query("vacuum analyze");
}
