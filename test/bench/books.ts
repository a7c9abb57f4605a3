// Rows of the ledger written by SQL, to fill a large database quickly, and the check of the ledger.

import { Family } from "../../gen/gateway/common/v1/family_pb.ts";
import { createLedgerStore } from "../../src/billing/store.ts";
import { digestBytes, digestSecret, mintSecret } from "../../src/keys/secret.ts";
import { connectPostgres, type Postgres } from "../../src/postgres/postgres.ts";
import type { Runner } from "../../src/postgres/statement.ts";
import { query } from "../support/query.ts";

type Row = Record<string, unknown>;

/** Connects with a long timeout: a gateway's own is too short for millions of rows. */
export function connectLedger(url: string): Postgres {
  return connectPostgres(url, { timeoutMs: 300_000 });
}

/** Runs a statement without a name. */
export function runSql<R = Row>(
  postgres: Runner,
  text: string,
  values: readonly unknown[] = [],
): Promise<R[]> {
  return query<R>(postgres, { name: "", text }, values);
}

/** Credits of each account, in micro-credits. */
export const creditsMicro = 2n ** 52n;

/** Accounts `acc_1` to `acc_<count>`, each with credits in its v1 pool. */
export async function addAccounts(postgres: Postgres, count: number): Promise<void> {
  const each = "from generate_series(1, $1::int) n";
  await runSql(
    postgres,
    `insert into accounts (account_id, name) select 'acc_' || n, 'bench' ${each}`,
    [count],
  );
  await runSql(
    postgres,
    `insert into transfers
       (transfer_id, account_id, family, kind, amount, posted_after, actor, idempotency_key)
     select 'tra_' || n, 'acc_' || n, 'v1', 'bonus', $2, $2, 'bench', 'bench' ${each}`,
    [count, creditsMicro],
  );
  await runSql(
    postgres,
    `insert into pools (account_id, family, posted) select 'acc_' || n, 'v1', $2::bigint ${each}`,
    [count, creditsMicro],
  );
}

/** Keys `key_1` to `key_<count>`, spread over the first `accounts` accounts, without secrets. */
export async function addKeys(postgres: Postgres, count: number, accounts: number): Promise<void> {
  await runSql(
    postgres,
    `insert into keys (key_id, account_id, family, name)
     select 'key_' || n, 'acc_' || (n - 1) % $2::int + 1, 'v1', 'bench' from generate_series(1, $1::int) n`,
    [count, accounts],
  );
  await runSql(
    postgres,
    "insert into budgets (account_id, family, payer) select account_id, family, key_id from keys",
  );
}

/**
 * Adds a secret to each of the keys `key_1` to `key_<count>` and returns the first `used`. The
 * others are random digests.
 */
export async function addSecrets(
  postgres: Postgres,
  count: number,
  used: number,
): Promise<string[]> {
  const secrets = Array.from({ length: used }, () => mintSecret(Family.V1));
  await runSql(
    postgres,
    `insert into key_secrets (digest, secret_id, key_id, shown)
     select digest, 'sec_' || n, 'key_' || n, ''
     from unnest($1::bytea[]) with ordinality as known (digest, n)`,
    [secrets.map((secret) => digestBytes(digestSecret(secret)))],
  );
  await runSql(
    postgres,
    `insert into key_secrets (digest, secret_id, key_id, shown)
     select sha256(n::text::bytea), 'sec_' || n, 'key_' || n, ''
     from generate_series($1::int + 1, $2::int) n`,
    [used, count],
  );
  return secrets;
}

/** The violations that the verifier finds. Empty: every invariant holds. */
export async function findViolations(postgres: Postgres): Promise<string[]> {
  const violations = await createLedgerStore(postgres).verifyLedger();
  return violations.map(({ invariant, subject }) => `${invariant}: ${subject}`);
}

/** The sum of all charges, in micro-credits. */
export async function sumCharges(postgres: Postgres): Promise<bigint> {
  const [sum] = await runSql<{ amount: bigint }>(
    postgres,
    "select coalesce(sum(amount), 0)::bigint as amount from charges",
  );
  return sum?.amount ?? 0n;
}
