// Made of src/billing/sql by `npm run generate`. Do not edit.

import { type Json, type Many, many, type One, one, type Optional, optional, type Run, run } from "../../src/postgres/statement.ts";

// accounts.sql

export type InsertAccountRow = { accountId: string; name: string; createdAt: Date; status: "active" | "suspended" | "closed"; statusReason: string; statusChangedAt: Date | null; billingName: string; billingAddress: string; billingTaxId: string; priceListId: string | null; priceListAt: Date | null };
/**
 * Creates an account with one empty pool per family.
 */
export const insertAccount: One<{ accountId: string; name: string }, InsertAccountRow> = one(
  "billing/insert-account",
  `-- billing/insert-account
with account as (
  insert into accounts (account_id, name) values ($1, $2)
  returning account_id, name, created_at, status, status_reason, status_changed_at, billing_name,
    billing_address, billing_tax_id, price_list_id, price_list_at
), pools as (
  insert into pools (account_id, "family")
  select account_id, "family" from account, unnest(array['v1', 'v2']) as "family"
)
select account_id, name, created_at, status, status_reason, status_changed_at, billing_name,
  billing_address, billing_tax_id, price_list_id, price_list_at
from account`,
  (p) => [p.accountId, p.name],
  (v) => ({ accountId: v[0], name: v[1], createdAt: v[2], status: v[3], statusReason: v[4], statusChangedAt: v[5], billingName: v[6], billingAddress: v[7], billingTaxId: v[8], priceListId: v[9], priceListAt: v[10] }) as never,
  "statusChangedAt priceListId priceListAt",
);

export type FindAccountRow = { accountId: string; name: string; createdAt: Date; status: "active" | "suspended" | "closed"; statusReason: string; statusChangedAt: Date | null; billingName: string; billingAddress: string; billingTaxId: string; priceListId: string | null; priceListAt: Date | null };
/**
 * Finds an account. No row: no such account.
 */
export const findAccount: Optional<{ accountId: string }, FindAccountRow> = optional(
  "billing/find-account",
  `-- billing/find-account
select account_id, name, created_at, status, status_reason, status_changed_at, billing_name,
  billing_address, billing_tax_id, price_list_id, price_list_at
from accounts
where account_id = $1`,
  (p) => [p.accountId],
  (v) => ({ accountId: v[0], name: v[1], createdAt: v[2], status: v[3], statusReason: v[4], statusChangedAt: v[5], billingName: v[6], billingAddress: v[7], billingTaxId: v[8], priceListId: v[9], priceListAt: v[10] }) as never,
  "statusChangedAt priceListId priceListAt",
);

export type ReadAccountStatusRow = { status: "active" | "suspended" | "closed" };
/**
 * Reads the status of an account. No row: no such account.
 */
export const readAccountStatus: Optional<{ accountId: string }, ReadAccountStatusRow> = optional(
  "billing/read-account-status",
  `-- billing/read-account-status
select status from accounts where account_id = $1`,
  (p) => [p.accountId],
  (v) => ({ status: v[0] }) as never,
  "",
);

export type ReadAccountsRow = { accountId: string; name: string; createdAt: Date; status: "active" | "suspended" | "closed"; statusReason: string; statusChangedAt: Date | null; billingName: string; billingAddress: string; billingTaxId: string; priceListId: string | null; priceListAt: Date | null };
/**
 * Reads accounts.
 */
export const readAccounts: Many<{ accountIds: readonly string[] }, ReadAccountsRow> = many(
  "billing/read-accounts",
  `-- billing/read-accounts
select account_id, name, created_at, status, status_reason, status_changed_at, billing_name,
  billing_address, billing_tax_id, price_list_id, price_list_at
from accounts
where account_id = any($1::text[])`,
  (p) => [p.accountIds],
  (v) => ({ accountId: v[0], name: v[1], createdAt: v[2], status: v[3], statusReason: v[4], statusChangedAt: v[5], billingName: v[6], billingAddress: v[7], billingTaxId: v[8], priceListId: v[9], priceListAt: v[10] }) as never,
  "statusChangedAt priceListId priceListAt",
);

export type ListAccountsRow = { accountId: string; name: string; createdAt: Date; status: "active" | "suspended" | "closed"; statusReason: string; statusChangedAt: Date | null; billingName: string; billingAddress: string; billingTaxId: string; priceListId: string | null; priceListAt: Date | null };
/**
 * Lists accounts, oldest first: all of them, or those that match.
 * `after`: the last one of the page before; empty: from the oldest
 * `name`: part of a name in small letters; empty: all accounts
 * `accountIds`: those that match in another way
 */
export const listAccounts: Many<{ after: string; name: string; accountIds: readonly string[]; rows: bigint | number }, ListAccountsRow> = many(
  "billing/list-accounts",
  `-- billing/list-accounts
select account_id, name, created_at, status, status_reason, status_changed_at, billing_name,
  billing_address, billing_tax_id, price_list_id, price_list_at
from accounts
where account_id > $1
  and ($2 = '' or strpos(lower(name), $2) > 0 or account_id = any($3::text[]))
order by account_id
limit $4`,
  (p) => [p.after, p.name, p.accountIds, p.rows],
  (v) => ({ accountId: v[0], name: v[1], createdAt: v[2], status: v[3], statusReason: v[4], statusChangedAt: v[5], billingName: v[6], billingAddress: v[7], billingTaxId: v[8], priceListId: v[9], priceListAt: v[10] }) as never,
  "statusChangedAt priceListId priceListAt",
);

export type ListOpenAccountsRow = { accountId: string; suspendedAt: Date | null };
/**
 * Lists the accounts that are not closed, and since when one is suspended.
 * `after`: the last one of the page before; empty: from the first
 */
export const listOpenAccounts: Many<{ after: string; rows: bigint | number }, ListOpenAccountsRow> = many(
  "billing/list-open-accounts",
  `-- billing/list-open-accounts
select account_id, case when status = 'suspended' then status_changed_at end as suspended_at
from accounts
where account_id > $1 and status <> 'closed'
order by account_id
limit $2`,
  (p) => [p.after, p.rows],
  (v) => ({ accountId: v[0], suspendedAt: v[1] }) as never,
  "suspendedAt",
);

export type LockAccountRow = { accountId: string; name: string; createdAt: Date; status: "active" | "suspended" | "closed"; statusReason: string; statusChangedAt: Date | null; billingName: string; billingAddress: string; billingTaxId: string; priceListId: string | null; priceListAt: Date | null };
/**
 * Locks an account, before its pools: no key is added meanwhile. No row: no such account.
 */
export const lockAccount: Optional<{ accountId: string }, LockAccountRow> = optional(
  "billing/lock-account",
  `-- billing/lock-account
select account_id, name, created_at, status, status_reason, status_changed_at, billing_name,
  billing_address, billing_tax_id, price_list_id, price_list_at
from accounts
where account_id = $1
for no key update`,
  (p) => [p.accountId],
  (v) => ({ accountId: v[0], name: v[1], createdAt: v[2], status: v[3], statusReason: v[4], statusChangedAt: v[5], billingName: v[6], billingAddress: v[7], billingTaxId: v[8], priceListId: v[9], priceListAt: v[10] }) as never,
  "statusChangedAt priceListId priceListAt",
);

export type RenameAccountRow = { accountId: string; name: string; createdAt: Date; status: "active" | "suspended" | "closed"; statusReason: string; statusChangedAt: Date | null; billingName: string; billingAddress: string; billingTaxId: string; priceListId: string | null; priceListAt: Date | null };
/**
 * Changes the name of an account. The caller has locked it.
 */
export const renameAccount: One<{ name: string; accountId: string }, RenameAccountRow> = one(
  "billing/rename-account",
  `-- billing/rename-account
update accounts
set name = $1
where account_id = $2
returning account_id, name, created_at, status, status_reason, status_changed_at, billing_name,
  billing_address, billing_tax_id, price_list_id, price_list_at`,
  (p) => [p.name, p.accountId],
  (v) => ({ accountId: v[0], name: v[1], createdAt: v[2], status: v[3], statusReason: v[4], statusChangedAt: v[5], billingName: v[6], billingAddress: v[7], billingTaxId: v[8], priceListId: v[9], priceListAt: v[10] }) as never,
  "statusChangedAt priceListId priceListAt",
);

export type SetAccountStatusRow = { accountId: string; name: string; createdAt: Date; status: "active" | "suspended" | "closed"; statusReason: string; statusChangedAt: Date | null; billingName: string; billingAddress: string; billingTaxId: string; priceListId: string | null; priceListAt: Date | null };
/**
 * Suspends, resumes or closes an account. The caller has locked it.
 * `reason`: in the operator's words; empty: not told
 */
export const setAccountStatus: One<{ status: "active" | "suspended" | "closed"; reason: string; accountId: string }, SetAccountStatusRow> = one(
  "billing/set-account-status",
  `-- billing/set-account-status
update accounts
set status = $1, status_reason = $2, status_changed_at = now()
where account_id = $3
returning account_id, name, created_at, status, status_reason, status_changed_at, billing_name,
  billing_address, billing_tax_id, price_list_id, price_list_at`,
  (p) => [p.status, p.reason, p.accountId],
  (v) => ({ accountId: v[0], name: v[1], createdAt: v[2], status: v[3], statusReason: v[4], statusChangedAt: v[5], billingName: v[6], billingAddress: v[7], billingTaxId: v[8], priceListId: v[9], priceListAt: v[10] }) as never,
  "statusChangedAt priceListId priceListAt",
);

export type SetBillingDetailsRow = { accountId: string; name: string; createdAt: Date; status: "active" | "suspended" | "closed"; statusReason: string; statusChangedAt: Date | null; billingName: string; billingAddress: string; billingTaxId: string; priceListId: string | null; priceListAt: Date | null };
/**
 * Replaces whom the documents of an account name. The caller has locked it.
 */
export const setBillingDetails: One<{ name: string; address: string; taxId: string; accountId: string }, SetBillingDetailsRow> = one(
  "billing/set-billing-details",
  `-- billing/set-billing-details
update accounts
set billing_name = $1, billing_address = $2, billing_tax_id = $3
where account_id = $4
returning account_id, name, created_at, status, status_reason, status_changed_at, billing_name,
  billing_address, billing_tax_id, price_list_id, price_list_at`,
  (p) => [p.name, p.address, p.taxId, p.accountId],
  (v) => ({ accountId: v[0], name: v[1], createdAt: v[2], status: v[3], statusReason: v[4], statusChangedAt: v[5], billingName: v[6], billingAddress: v[7], billingTaxId: v[8], priceListId: v[9], priceListAt: v[10] }) as never,
  "statusChangedAt priceListId priceListAt",
);

export type ReadDefaultLimitsRow = { defaultMemberLimits: Json | null };
/**
 * The limits that members of an account without one get, as JSON of BudgetLimits. No row: no such
 * account.
 */
export const readDefaultLimits: Optional<{ accountId: string }, ReadDefaultLimitsRow> = optional(
  "billing/read-default-limits",
  `-- billing/read-default-limits
select default_member_limits from accounts where account_id = $1`,
  (p) => [p.accountId],
  (v) => ({ defaultMemberLimits: v[0] }) as never,
  "defaultMemberLimits",
);

/**
 * Replaces them.
 * `limits`: null: none
 */
export const setDefaultLimits: Run<{ limits: string | null; accountId: string }> = run(
  "billing/set-default-limits",
  `-- billing/set-default-limits
update accounts set default_member_limits = $1::jsonb where account_id = $2`,
  (p) => [p.limits, p.accountId],
);

// admission.sql

/**
 * Stores holds and adds them to their pools. The caller has locked the pools and found that they
 * and the budgets cover the holds. Unique violation: another transaction took one of the requests
 * in the meantime. Times of admission are whole milliseconds, as in JavaScript.
 * `secretIds`: null: the caller presented none
 * `nodeIds`: null: the hold belongs to a calling service
 * `tags`: null: none
 * `madeBy`: null: the gateway
 * `managers`: whose row counts it beside that of the key; null: none
 * `deadlinesMs`: from now
 * `today`: the UTC day of the transaction, as `NodeClock` tells the time
 * `monday`: on which its week began
 * `first`: on which its month began
 */
export const placeHolds: Run<{ accountIds: readonly string[]; requestIds: readonly string[]; families: readonly string[]; keyIds: readonly string[]; secretIds: readonly (string | null)[]; models: readonly string[]; amounts: readonly (bigint | number)[]; priceVersions: readonly string[]; nonces: readonly string[]; deadlinesMs: readonly number[]; nodeIds: readonly (string | null)[]; grantedOutputs: readonly number[]; tags: readonly (string | null)[]; madeBy: readonly (string | null)[]; managers: readonly (string | null)[]; today: string; monday: string; first: string }> = run(
  "billing/place-holds",
  `-- billing/place-holds
with placed as (
  insert into holds (account_id, request_id, "family", key_id, secret_id, model, month, amount,
    price_version, node_id, nonce, admitted_at, deadline, granted_output, tags,
    made_by, manager)
  select account_id, request_id, "family", key_id, secret_id, model,
    date_trunc('month', now() at time zone 'utc')::date, amount, price_version, node_id, nonce,
    date_trunc('milliseconds', now()), now() + deadline * interval '1 millisecond',
    granted_output, tags, made_by, manager
  from unnest($1::text[], $2::text[], $3::text[], $4::text[],
      $5::text[], $6::text[], $7::bigint[], $8::text[],
      $9::text[], $10::integer[], $11::text[], $12::integer[],
      $13::jsonb[], $14::text[], $15::text[])
    as h (account_id, request_id, "family", key_id, secret_id, model,
      amount, price_version, nonce, deadline, node_id, granted_output, tags, made_by, manager)
  returning account_id, "family", amount
)
update pools p
set held = p.held + d.amount, running = p.running + d.requests,
  -- The first change of a UTC day begins the windows that begin with it.
  day = greatest(p.day, $16::date),
  day_base = case when p.day < $16 then p.spent else p.day_base end,
  week_base = case when p.day < $17::date then p.spent else p.week_base end,
  month_base = case when p.day < $18::date then p.spent else p.month_base end
from (
  select account_id, "family", sum(amount)::bigint as amount, count(*)::integer as requests
  from placed
  group by account_id, "family"
) d
where p.account_id = d.account_id and p."family" = d."family"`,
  (p) => [p.accountIds, p.requestIds, p.families, p.keyIds, p.secretIds, p.models, p.amounts, p.priceVersions, p.nonces, p.deadlinesMs, p.nodeIds, p.grantedOutputs, p.tags, p.madeBy, p.managers, p.today, p.monday, p.first],
);

export type PlaceHoldRow = { admittedAt: Date; month: string };
/**
 * Stores one hold as PlaceHolds does, where its pool, its key and its node are as this process last
 * saw them: without limits, and the pool with the same credits. No row: one of them is not, and
 * nothing is stored. The caller has locked the pool before, so that what it waited for is seen
 * here.
 * `posted`: of the pool, as the amount was decided on
 * `held`: the same
 * `allowedModels`: of the key, the same
 * `secretId`: null: the caller presented none
 * `nodeId`: of this process
 * `ownerId`: null: the hold belongs to a calling service
 * `tags`: null: none
 * `madeBy`: null: the gateway
 * `deadlineMs`: from now
 */
export const placeHold: Optional<{ nodeId: string; amount: bigint | number; accountId: string; family: "v1" | "v2"; posted: bigint | number; held: bigint | number; keyId: string; allowedModels: readonly string[]; secretId: string | null; requestId: string; model: string; priceVersion: string; ownerId: string | null; nonce: string; deadlineMs: number; grantedOutput: number; tags: string | null; madeBy: string | null }, PlaceHoldRow> = optional(
  "billing/place-hold",
  `-- billing/place-hold
with today as materialized (
  select (now() at time zone 'utc')::date as today,
    date_trunc('week', now() at time zone 'utc')::date as monday,
    date_trunc('month', now() at time zone 'utc')::date as first
), node as materialized (
  -- Against its deletion: a node that was declared dead must not admit requests.
  select node_id from nodes where node_id = $1 for key share
), in_pool as (
  update pools p
  set held = p.held + $2, running = p.running + 1,
    -- The first change of a UTC day begins the windows that begin with it.
    day = greatest(p.day, t.today),
    day_base = case when p.day < t.today then p.spent else p.day_base end,
    week_base = case when p.day < t.monday then p.spent else p.week_base end,
    month_base = case when p.day < t.first then p.spent else p.month_base end
  from today t
  cross join node
  where p.account_id = $3 and p."family" = $4
    and p.posted = $5 and p.held = $6
    and not p.in_debt and p.account_status = 'active' and not p.is_limited
    and exists (
      select 1
      from keys k
      where k.key_id = $7 and k.status = 'active' and not k.paused
        and (k.expires_at is null or k.expires_at > now())
        and k.allowed_models = $8
        and not exists (
          select 1
          from budgets b
          where b.account_id = k.account_id and b."family" = k."family"
            and b.payer in (k.key_id, k.managed_by) and b.is_limited
        )
    )
    and not exists (
      select 1
      from key_secrets
      where secret_id = $9 and (revoked_at is not null or expires_at <= now())
    )
  returning p.account_id, p."family", t.first
)
insert into holds (account_id, request_id, "family", key_id, secret_id, model, month, amount,
  price_version, node_id, nonce, admitted_at, deadline, granted_output, tags, made_by)
select account_id, $10, "family", $7, $9, $11, first, $2::bigint,
  $12, $13, $14, date_trunc('milliseconds', now()),
  now() + $15::integer * interval '1 millisecond', $16, $17::jsonb, $18
from in_pool
returning admitted_at, month`,
  (p) => [p.nodeId, p.amount, p.accountId, p.family, p.posted, p.held, p.keyId, p.allowedModels, p.secretId, p.requestId, p.model, p.priceVersion, p.ownerId, p.nonce, p.deadlineMs, p.grantedOutput, p.tags, p.madeBy],
  (v) => ({ admittedAt: v[0], month: v[1] }) as never,
  "",
);

/**
 * Adds holds that PlaceHolds stores to budgets with a limit: each amount to that of one payer.
 * `today`: as for PlaceHolds, and the others
 */
export const addToBudgets: Run<{ today: string; monday: string; first: string; accountIds: readonly string[]; families: readonly string[]; payers: readonly string[]; amounts: readonly (bigint | number)[] }> = run(
  "billing/add-to-budgets",
  `-- billing/add-to-budgets
update budgets b
set held = b.held + d.amount, running = b.running + d.requests,
  day = greatest(b.day, $1::date),
  day_base = case when b.day < $1 then b.spent else b.day_base end,
  week_base = case when b.day < $2::date then b.spent else b.week_base end,
  month_base = case when b.day < $3::date then b.spent else b.month_base end
from (
  select account_id, "family", payer, sum(amount)::bigint as amount, count(*)::integer as requests
  from unnest($4::text[], $5::text[], $6::text[], $7::bigint[])
    as h (account_id, "family", payer, amount)
  group by account_id, "family", payer
) d
where b.account_id = d.account_id and b."family" = d."family" and b.payer = d.payer`,
  (p) => [p.today, p.monday, p.first, p.accountIds, p.families, p.payers, p.amounts],
);

/**
 * Fails with a unique violation when one of these requests was charged lately; stores nothing. Runs
 * after the holds of the requests were inserted: it sees charges that other transactions committed
 * since this one read the used requests, and transactions that insert the same request wait for
 * this commit. So a request is never both held and charged. Such a charge is of the current UTC
 * month or of the one before.
 */
export const refuseCharged: Run<{ accountIds: readonly string[]; requestIds: readonly string[] }> = run(
  "billing/refuse-charged",
  `-- billing/refuse-charged
insert into charges (account_id, request_id, month, "family", key_id, secret_id, model,
  input, output, thinking, cache_write_5m, cache_write_1h, cache_read, web_searches,
  price_version, granted_output, hold, amount, overrun, output_over, thinking_over, outcome, basis,
  attempts, admitted_at, settled_at, tags)
select c.account_id, c.request_id, c.month, c."family", c.key_id, c.secret_id, c.model,
  c.input, c.output, c.thinking, c.cache_write_5m, c.cache_write_1h, c.cache_read, c.web_searches,
  c.price_version, c.granted_output, c.hold, c.amount, c.overrun, c.output_over, c.thinking_over,
  c.outcome, c.basis, c.attempts, c.admitted_at, c.settled_at, c.tags
from unnest($1::text[], $2::text[]) as d (account_id, request_id)
-- The offset makes the planner look up each request, rather than read both months.
cross join lateral (
  select *
  from charges
  where account_id = d.account_id and request_id = d.request_id
    and month between
      (date_trunc('month', now() at time zone 'utc') - interval '1 month')::date
      and date_trunc('month', now() at time zone 'utc')::date
  offset 0
) c`,
  (p) => [p.accountIds, p.requestIds],
);

export type FindPayerRow = { accountId: string; family: "v1" | "v2"; priceListId: string | null };
/**
 * Finds the pool that pays for a key, and the price list of its account. No row: no such key.
 */
export const findPayer: Optional<{ keyId: string }, FindPayerRow> = optional(
  "billing/find-payer",
  `-- billing/find-payer
select k.account_id, k."family", a.price_list_id
from keys k
join accounts a using (account_id)
where k.key_id = $1`,
  (p) => [p.keyId],
  (v) => ({ accountId: v[0], family: v[1], priceListId: v[2] }) as never,
  "priceListId",
);

export type ReadKeysRow = { keyId: string; accountId: string; family: "v1" | "v2"; allowedModels: string[]; status: "active" | "paused" | "expired" | "revoked"; budget: bigint[] | null; manager: string | null; managerBudget: bigint[] | null };
/**
 * Reads the fields of keys that admission checks, with their budgets and those of the persons or
 * management keys that manage them, each as `base/budgets.ts` reads it. A budget without a limit is
 * null, and a manager without one.
 */
export const readKeys: Many<{ keyIds: readonly string[] }, ReadKeysRow> = many(
  "billing/read-keys",
  `-- billing/read-keys
select k.key_id as key_id, k.account_id as account_id, k."family" as "family",
  k.allowed_models as allowed_models,
  case when k.status = 'revoked' then 'revoked'
    when k.expires_at <= now() then 'expired'
    when k.paused then 'paused'
    else 'active' end as status,
  case when b.is_limited then array[b.day - date '1970-01-01', b.spent, b.held, b.running,
    b.day_base, b.week_base, b.month_base, b.total_base,
    coalesce(b.day_limit, -1), coalesce(b.week_limit, -1), coalesce(b.month_limit, -1),
    coalesce(b.total_limit, -1), coalesce(b.running_limit, -1)] end as budget,
  m.payer as manager,
  case when m.is_limited then array[m.day - date '1970-01-01', m.spent, m.held, m.running,
    m.day_base, m.week_base, m.month_base, m.total_base,
    coalesce(m.day_limit, -1), coalesce(m.week_limit, -1), coalesce(m.month_limit, -1),
    coalesce(m.total_limit, -1), coalesce(m.running_limit, -1)] end as manager_budget
from keys k
join budgets b on b.account_id = k.account_id and b."family" = k."family" and b.payer = k.key_id
left join budgets m
  -- Null: no look-up for a key that nobody manages.
  on m.account_id = k.account_id and m."family" = k."family"
    and m.payer = nullif(k.managed_by, '') and m.is_limited
where k.key_id = any($1::text[])`,
  (p) => [p.keyIds],
  (v) => ({ keyId: v[0], accountId: v[1], family: v[2], allowedModels: v[3], status: v[4], budget: v[5], manager: v[6], managerBudget: v[7] }) as never,
  "budget manager managerBudget",
);

export type ReadDeadSecretsRow = { secretId: string; revoked: boolean };
/**
 * Returns those of these secrets that were revoked or have expired.
 */
export const readDeadSecrets: Many<{ secretIds: readonly string[] }, ReadDeadSecretsRow> = many(
  "billing/read-dead-secrets",
  `-- billing/read-dead-secrets
select secret_id, revoked_at is not null as revoked
from key_secrets
where secret_id = any($1::text[]) and (revoked_at is not null or expires_at <= now())`,
  (p) => [p.secretIds],
  (v) => ({ secretId: v[0], revoked: v[1] }) as never,
  "",
);

export type ReadUsedRequestsRow = { accountId: string; requestId: string; nodeId: string | null; nonce: string; keyId: string; model: string; amount: bigint; grantedOutput: number; admittedAt: Date; month: string; priceVersion: string; input: bigint; output: bigint; thinking: bigint; cacheWrite5m: bigint; cacheWrite1h: bigint; cacheRead: bigint; webSearch: bigint; promptOver: number | null; promptAbove: number | null; abovePrice: Json | null; note: string };
/**
 * Returns those of these requests that run or were charged lately, with the prices at which they
 * were admitted. Lately: in the current UTC month or in the one before. An id that was made a
 * moment ago cannot have been used before.
 */
export const readUsedRequests: Many<{ accountIds: readonly string[]; requestIds: readonly string[] }, ReadUsedRequestsRow> = many(
  "billing/read-used-requests",
  `-- billing/read-used-requests
select u.account_id as account_id, u.request_id as request_id, u.node_id as node_id,
  u.nonce as nonce, u.key_id as key_id, u.model as model, u.amount as amount,
  u.granted_output as granted_output, u.admitted_at as admitted_at, u.month as month,
  p.price_version, p.input, p.output, p.thinking, p.cache_write_5m, p.cache_write_1h, p.cache_read,
  p.web_search, p.prompt_over, p.prompt_above, p.above_price, p.note
from (
  select account_id, request_id, node_id, nonce, key_id, model, amount, granted_output,
    admitted_at, month, price_version
  from holds
  join unnest($1::text[], $2::text[]) as d (account_id, request_id)
    using (account_id, request_id)
  union all
  select c.account_id, c.request_id, '', '', c.key_id, c.model, 0, c.granted_output, c.admitted_at,
    c.month, c.price_version
  from unnest($1::text[], $2::text[]) as d (account_id, request_id)
  -- The offset makes the planner look up each request, rather than read both months.
  cross join lateral (
    select *
    from charges
    where account_id = d.account_id and request_id = d.request_id
      and month between
        (date_trunc('month', now() at time zone 'utc') - interval '1 month')::date
        and date_trunc('month', now() at time zone 'utc')::date
    offset 0
  ) c
) u
join price_versions p using (price_version)`,
  (p) => [p.accountIds, p.requestIds],
  (v) => ({ accountId: v[0], requestId: v[1], nodeId: v[2], nonce: v[3], keyId: v[4], model: v[5], amount: v[6], grantedOutput: v[7], admittedAt: v[8], month: v[9], priceVersion: v[10], input: v[11], output: v[12], thinking: v[13], cacheWrite5m: v[14], cacheWrite1h: v[15], cacheRead: v[16], webSearch: v[17], promptOver: v[18], promptAbove: v[19], abovePrice: v[20], note: v[21] }) as never,
  "nodeId promptOver promptAbove abovePrice",
);

export type ReadOldRequestsRow = { accountId: string; requestId: string; nodeId: string; nonce: string; keyId: string; model: string; amount: bigint; grantedOutput: number; admittedAt: Date; month: string; priceVersion: string; input: bigint; output: bigint; thinking: bigint; cacheWrite5m: bigint; cacheWrite1h: bigint; cacheRead: bigint; webSearch: bigint; promptOver: number | null; promptAbove: number | null; abovePrice: Json | null; note: string };
/**
 * Returns those of these requests that were charged before the months of ReadUsedRequests. Only for
 * ids that a caller proposed.
 */
export const readOldRequests: Many<{ accountIds: readonly string[]; requestIds: readonly string[] }, ReadOldRequestsRow> = many(
  "billing/read-old-requests",
  `-- billing/read-old-requests
select c.account_id, c.request_id, '' as node_id, '' as nonce, c.key_id, c.model,
  0::bigint as amount, c.granted_output, c.admitted_at, c.month,
  p.price_version, p.input, p.output, p.thinking, p.cache_write_5m, p.cache_write_1h, p.cache_read,
  p.web_search, p.prompt_over, p.prompt_above, p.above_price, p.note
from unnest($1::text[], $2::text[]) as d (account_id, request_id)
-- The offset makes the planner look up each request, rather than read all months.
cross join lateral (
  select *
  from charges
  where account_id = d.account_id and request_id = d.request_id
    and month < (date_trunc('month', now() at time zone 'utc') - interval '1 month')::date
  offset 0
) c
join price_versions p using (price_version)`,
  (p) => [p.accountIds, p.requestIds],
  (v) => ({ accountId: v[0], requestId: v[1], nodeId: v[2], nonce: v[3], keyId: v[4], model: v[5], amount: v[6], grantedOutput: v[7], admittedAt: v[8], month: v[9], priceVersion: v[10], input: v[11], output: v[12], thinking: v[13], cacheWrite5m: v[14], cacheWrite1h: v[15], cacheRead: v[16], webSearch: v[17], promptOver: v[18], promptAbove: v[19], abovePrice: v[20], note: v[21] }) as never,
  "promptOver promptAbove abovePrice",
);

export type LockPoolsRow = { accountId: string; family: "v1" | "v2"; posted: bigint; held: bigint; inDebt: boolean; accountStatus: "active" | "suspended" | "closed"; budget: bigint[] | null };
/**
 * Locks pools in the order of their ids. The lock of a pool guards everything below it: its keys'
 * budgets, its roll-ups and its holds. The budget of a pool is as those of ReadKeys.
 */
export const lockPools: Many<{ accountIds: readonly string[]; families: readonly string[] }, LockPoolsRow> = many(
  "billing/lock-pools",
  `-- billing/lock-pools
select p.account_id, p."family", p.posted, p.held, p.in_debt, p.account_status,
  case when p.is_limited then array[p.day - date '1970-01-01', p.spent, p.held, p.running,
    p.day_base, p.week_base, p.month_base, p.total_base,
    coalesce(p.day_limit, -1), coalesce(p.week_limit, -1), coalesce(p.month_limit, -1),
    coalesce(p.total_limit, -1), coalesce(p.running_limit, -1)] end as budget
from unnest($1::text[], $2::text[]) as d (account_id, "family")
join pools p using (account_id, "family")
order by p.account_id, p."family"
for update of p`,
  (p) => [p.accountIds, p.families],
  (v) => ({ accountId: v[0], family: v[1], posted: v[2], held: v[3], inDebt: v[4], accountStatus: v[5], budget: v[6] }) as never,
  "budget",
);

/**
 * Writes what admissions and settlements write: a hold, a pool, a charge and an hour of usage.
 * Fails where they would: at a lock, on a full disk. The caller rolls back. The rows are of no
 * account.
 */
export const tryWrites: Run<{ requestId: string }> = run(
  "billing/try-writes",
  `-- billing/try-writes
with placed as (
  insert into holds (account_id, request_id, "family", key_id, model, month, amount,
    price_version, nonce, admitted_at, deadline, granted_output)
  values ('', $1, 'v1', '', '', date_trunc('month', now() at time zone 'utc')::date, 0,
    '', '', now(), now(), 0)
), in_pools as (
  update pools set held = held where account_id = ''
), charged as (
  insert into charges (account_id, request_id, month, "family", key_id, model,
    input, output, thinking, cache_write_5m, cache_write_1h, cache_read, web_searches,
    price_version, granted_output, hold, amount, overrun, output_over, thinking_over, outcome,
    basis, admitted_at, settled_at)
  values ('', $1, date_trunc('month', now() at time zone 'utc')::date, 'v1', '', '',
    0, 0, 0, 0, 0, 0, 0, '', 0, 0, 0, 0, 0, 0, '', '', now(), now())
)
insert into usage_hourly (account_id, key_id, model, hour) values ('', '', $1, now())`,
  (p) => [p.requestId],
);

// budgets.sql

/**
 * Gives a payer its budget, without limits, unless it has one.
 */
export const openBudget: Run<{ accountId: string; family: "v1" | "v2"; payer: string }> = run(
  "billing/open-budget",
  `-- billing/open-budget
insert into budgets (account_id, "family", payer)
values ($1, $2, $3)
on conflict (account_id, "family", payer) do nothing`,
  (p) => [p.accountId, p.family, p.payer],
);

/**
 * Begins to count what a person or a management key spends of a pool, whose budget has no limit
 * yet: with what their keys were charged in the windows of now, by the hour of admission. The holds
 * of these keys get this manager, unless they have one, and are locked in the order of their ids,
 * as checkpoints do. The caller has locked the pool. Changes no row: the budget has a limit.
 */
export const startManager: Run<{ accountId: string; family: "v1" | "v2"; payer: string }> = run(
  "billing/start-manager",
  `-- billing/start-manager
with windows as (
  select (now() at time zone 'utc')::date as today,
    date_trunc('day', now(), 'UTC') as day, date_trunc('week', now(), 'UTC') as week,
    date_trunc('month', now(), 'UTC') as month
), managed as materialized (
  select k.key_id
  from keys k
  join budgets b
    on b.account_id = k.account_id and b."family" = k."family" and b.payer = k.managed_by
  where k.account_id = $1 and k."family" = $2 and k.managed_by = $3
    and not b.is_limited
), ordered as (
  select account_id, request_id
  from holds
  where account_id = $1 and key_id in (select key_id from managed) and manager is null
  order by request_id
  for update
), taken as (
  update holds
  set manager = $3
  from ordered
  where holds.account_id = ordered.account_id and holds.request_id = ordered.request_id
), charged as (
  select coalesce(sum(u.amount) filter (where u.hour >= w.day), 0)::bigint as of_day,
    coalesce(sum(u.amount) filter (where u.hour >= w.week), 0)::bigint as of_week,
    coalesce(sum(u.amount) filter (where u.hour >= w.month), 0)::bigint as of_month
  from usage_hourly u
  cross join windows w
  where u.account_id = $1 and u.hour >= least(w.week, w.month)
    and u.key_id in (select key_id from managed)
)
update budgets b
set day = greatest(b.day, w.today), day_base = b.spent - c.of_day, week_base = b.spent - c.of_week,
  month_base = b.spent - c.of_month, total_base = b.spent
from windows w
cross join charged c
where b.account_id = $1 and b."family" = $2 and b.payer = $3
  and not b.is_limited`,
  (p) => [p.accountId, p.family, p.payer],
);

/**
 * Replaces the limits of a payer's budget, which knows what runs while it has one. The total of a
 * person or a management key begins with its limit, that of a key with the key. The caller has
 * locked the pool. Changes no row: it has no budget.
 */
export const setLimits: Run<{ dayLimit: bigint | number | null; weekLimit: bigint | number | null; monthLimit: bigint | number | null; totalLimit: bigint | number | null; runningLimit: number | null; accountId: string; family: "v1" | "v2"; payer: string }> = run(
  "billing/set-limits",
  `-- billing/set-limits
update budgets
set day_limit = $1, week_limit = $2, month_limit = $3,
  total_limit = $4, running_limit = $5,
  held = counted.held, running = counted.running,
  total_base = case
    when total_limit is null and $4::bigint is not null and strpos(payer, ':') > 0
    then spent else total_base end
from (
  select coalesce(sum(amount), 0)::bigint as held, count(*)::integer as running
  from holds
  where account_id = $6 and "family" = $7 and $8 in (key_id, manager)
    and coalesce($1::bigint, $2::bigint, $3::bigint,
      $4::bigint, $5::integer) is not null
) counted
where account_id = $6 and "family" = $7 and payer = $8`,
  (p) => [p.dayLimit, p.weekLimit, p.monthLimit, p.totalLimit, p.runningLimit, p.accountId, p.family, p.payer],
);

/**
 * The same of a whole pool. Its total begins with its limit.
 */
export const setPoolLimits: Run<{ dayLimit: bigint | number | null; weekLimit: bigint | number | null; monthLimit: bigint | number | null; totalLimit: bigint | number | null; runningLimit: number | null; accountId: string; family: "v1" | "v2" }> = run(
  "billing/set-pool-limits",
  `-- billing/set-pool-limits
update pools
set day_limit = $1, week_limit = $2, month_limit = $3,
  total_limit = $4, running_limit = $5,
  total_base = case when total_limit is null and $4::bigint is not null
    then spent else total_base end
where account_id = $6 and "family" = $7`,
  (p) => [p.dayLimit, p.weekLimit, p.monthLimit, p.totalLimit, p.runningLimit, p.accountId, p.family],
);

/**
 * Begins the total of a payer anew. What runs counts after it. The caller has locked the pool.
 * Changes no row: it has no budget.
 */
export const resetTotal: Run<{ accountId: string; family: "v1" | "v2"; payer: string }> = run(
  "billing/reset-total",
  `-- billing/reset-total
update budgets
set total_base = spent
where account_id = $1 and "family" = $2 and payer = $3`,
  (p) => [p.accountId, p.family, p.payer],
);

/**
 * The same of a whole pool.
 */
export const resetPoolTotal: Run<{ accountId: string; family: "v1" | "v2" }> = run(
  "billing/reset-pool-total",
  `-- billing/reset-pool-total
update pools
set total_base = spent
where account_id = $1 and "family" = $2`,
  (p) => [p.accountId, p.family],
);

export type ReadBudgetsRow = { payer: string; family: "v1" | "v2"; at: Date; budget: bigint[] };
/**
 * Reads budgets of an account that are not those of keys, with the time of this, in the order of
 * payer and family: of its pools, which have an empty payer, of persons and management keys with a
 * limit, and of others with keys what these were charged, by the hour of admission.
 * `afterPayer`: of the last row of the page before; empty: from the first
 * `afterFamily`: of the same row
 */
export const readBudgets: Many<{ accountId: string; afterPayer: string; afterFamily: string; rows: bigint | number }, ReadBudgetsRow> = many(
  "billing/read-budgets",
  `-- billing/read-budgets
select payer as payer, "family" as "family", now() as at,
  array[day - date '1970-01-01', spent, held, running, day_base, week_base, month_base, total_base,
    coalesce(day_limit, -1), coalesce(week_limit, -1), coalesce(month_limit, -1),
    coalesce(total_limit, -1), coalesce(running_limit, -1)] as budget
from (
  select '' collate "C" as payer, "family", day, spent, held, running, day_base, week_base,
    month_base, total_base, day_limit, week_limit, month_limit, total_limit, running_limit
  from pools
  where account_id = $1
  union all
  select payer, "family", day, spent, held, running, day_base, week_base, month_base, total_base,
    day_limit, week_limit, month_limit, total_limit, running_limit
  from budgets b
  where account_id = $1 and strpos(payer, ':') > 0 and b.is_limited
  union all
  select payer, "family", (now() at time zone 'utc')::date, of_month, 0, 0, of_month - of_day,
    of_month - of_week, 0, of_month, null, null, null, null, null
  from (
    select k.managed_by as payer, k."family",
      coalesce(sum(u.amount) filter (where u.hour >= w.day), 0)::bigint as of_day,
      coalesce(sum(u.amount) filter (where u.hour >= w.week), 0)::bigint as of_week,
      coalesce(sum(u.amount) filter (where u.hour >= w.month), 0)::bigint as of_month
    from (
      select date_trunc('day', now(), 'UTC') as day, date_trunc('week', now(), 'UTC') as week,
        date_trunc('month', now(), 'UTC') as month
    ) w
    cross join keys k
    join (
      -- No more than a page of them: the usage of many keys is long.
      select distinct k.managed_by, k."family"
      from keys k
      where k.account_id = $1 and k.managed_by <> ''
        and (k.managed_by, k."family") > ($2, $3) and not exists (
          select 1
          from budgets b
          where b.account_id = k.account_id and b."family" = k."family" and b.payer = k.managed_by
            and b.is_limited
        )
      order by k.managed_by, k."family"
      limit $4
    ) page on page.managed_by = k.managed_by and page."family" = k."family"
    left join usage_hourly u
      on u.account_id = k.account_id and u.key_id = k.key_id and u.hour >= least(w.week, w.month)
    where k.account_id = $1
    group by k.managed_by, k."family"
  ) unlimited
) b
where (payer, "family") > ($2, $3)
order by payer, "family"
limit $4`,
  (p) => [p.accountId, p.afterPayer, p.afterFamily, p.rows],
  (v) => ({ payer: v[0], family: v[1], at: v[2], budget: v[3] }) as never,
  "",
);

export type ReadBudgetsOfRow = { family: "v1" | "v2"; at: Date; budget: bigint[] };
/**
 * Reads the budgets of a payer, with the time of this: of a pool, its empty payer.
 */
export const readBudgetsOf: Many<{ accountId: string; payer: string }, ReadBudgetsOfRow> = many(
  "billing/read-budgets-of",
  `-- billing/read-budgets-of
select "family" as "family", now() as at,
  array[day - date '1970-01-01', spent, held, running, day_base, week_base, month_base, total_base,
    coalesce(day_limit, -1), coalesce(week_limit, -1), coalesce(month_limit, -1),
    coalesce(total_limit, -1), coalesce(running_limit, -1)] as budget
from (
  select '' as payer, "family", day, spent, held, running, day_base, week_base, month_base,
    total_base, day_limit, week_limit, month_limit, total_limit, running_limit
  from pools
  where account_id = $1
  union all
  select payer, "family", day, spent, held, running, day_base, week_base, month_base, total_base,
    day_limit, week_limit, month_limit, total_limit, running_limit
  from budgets
  where account_id = $1
) b
where payer = $2
order by "family"`,
  (p) => [p.accountId, p.payer],
  (v) => ({ family: v[0], at: v[1], budget: v[2] }) as never,
  "",
);

export type ShareManagerRow = { managedBy: string; isOwners: boolean };
/**
 * Who manages a key, as `managed_by`, and whether its limits are an owner's, until the end of the
 * transaction. No row: there is no such key.
 */
export const shareManager: Optional<{ keyId: string }, ShareManagerRow> = optional(
  "billing/share-manager",
  `-- billing/share-manager
select managed_by, limited_by_owner and not limited_by_program as is_owners
from keys
where key_id = $1
for share`,
  (p) => [p.keyId],
  (v) => ({ managedBy: v[0], isOwners: v[1] }) as never,
  "",
);

// charges.sql

export type FindChargeRow = { requestId: string; accountId: string; family: "v1" | "v2"; keyId: string; model: string; grantedOutput: number; hold: bigint; amount: bigint; overrun: bigint; outputOver: number; thinkingOver: number; outcome: string; basis: string; attempts: Json; facts: Json | null; tags: Json | null; madeBy: string | null; admittedAt: Date; settledAt: Date; usedInput: number; usedOutput: number; usedThinking: number; usedCacheWrite5m: number; usedCacheWrite1h: number; usedCacheRead: number; usedWebSearches: number; priceVersion: string; input: bigint; output: bigint; thinking: bigint; cacheWrite5m: bigint; cacheWrite1h: bigint; cacheRead: bigint; webSearch: bigint; promptOver: number | null; promptAbove: number | null; abovePrice: Json | null; note: string };
/**
 * Finds the charge of a finished request, with its price.
 */
export const findCharge: Optional<{ accountId: string; requestId: string }, FindChargeRow> = optional(
  "billing/find-charge",
  `-- billing/find-charge
select c.request_id, c.account_id, c."family", c.key_id, c.model, c.granted_output, c.hold,
  c.amount, c.overrun, c.output_over, c.thinking_over,
  c.outcome, c.basis, c.attempts, c.facts, c.tags, c.made_by, c.admitted_at, c.settled_at,
  c.input as used_input, c.output as used_output, c.thinking as used_thinking,
  c.cache_write_5m as used_cache_write_5m, c.cache_write_1h as used_cache_write_1h,
  c.cache_read as used_cache_read, c.web_searches as used_web_searches,
  p.price_version, p.input, p.output, p.thinking, p.cache_write_5m, p.cache_write_1h, p.cache_read,
  p.web_search, p.prompt_over, p.prompt_above, p.above_price, p.note
from charges c
join price_versions p using (price_version)
where c.account_id = $1 and c.request_id = $2`,
  (p) => [p.accountId, p.requestId],
  (v) => ({ requestId: v[0], accountId: v[1], family: v[2], keyId: v[3], model: v[4], grantedOutput: v[5], hold: v[6], amount: v[7], overrun: v[8], outputOver: v[9], thinkingOver: v[10], outcome: v[11], basis: v[12], attempts: v[13], facts: v[14], tags: v[15], madeBy: v[16], admittedAt: v[17], settledAt: v[18], usedInput: v[19], usedOutput: v[20], usedThinking: v[21], usedCacheWrite5m: v[22], usedCacheWrite1h: v[23], usedCacheRead: v[24], usedWebSearches: v[25], priceVersion: v[26], input: v[27], output: v[28], thinking: v[29], cacheWrite5m: v[30], cacheWrite1h: v[31], cacheRead: v[32], webSearch: v[33], promptOver: v[34], promptAbove: v[35], abovePrice: v[36], note: v[37] }) as never,
  "facts tags madeBy promptOver promptAbove abovePrice",
);

export type FindChargesRow = { requestId: string; accountId: string; family: "v1" | "v2"; keyId: string; model: string; grantedOutput: number; hold: bigint; amount: bigint; overrun: bigint; outputOver: number; thinkingOver: number; outcome: string; basis: string; attempts: Json; facts: Json | null; tags: Json | null; madeBy: string | null; admittedAt: Date; settledAt: Date; usedInput: number; usedOutput: number; usedThinking: number; usedCacheWrite5m: number; usedCacheWrite1h: number; usedCacheRead: number; usedWebSearches: number; priceVersion: string; input: bigint; output: bigint; thinking: bigint; cacheWrite5m: bigint; cacheWrite1h: bigint; cacheRead: bigint; webSearch: bigint; promptOver: number | null; promptAbove: number | null; abovePrice: Json | null; note: string };
/**
 * Finds the charges with a request id in all accounts, with their prices.
 * `months`: null: those of every month
 */
export const findCharges: Many<{ requestId: string; months: readonly string[] | null }, FindChargesRow> = many(
  "billing/find-charges",
  `-- billing/find-charges
select c.request_id, c.account_id, c."family", c.key_id, c.model, c.granted_output, c.hold,
  c.amount, c.overrun, c.output_over, c.thinking_over,
  c.outcome, c.basis, c.attempts, c.facts, c.tags, c.made_by, c.admitted_at, c.settled_at,
  c.input as used_input, c.output as used_output, c.thinking as used_thinking,
  c.cache_write_5m as used_cache_write_5m, c.cache_write_1h as used_cache_write_1h,
  c.cache_read as used_cache_read, c.web_searches as used_web_searches,
  p.price_version, p.input, p.output, p.thinking, p.cache_write_5m, p.cache_write_1h, p.cache_read,
  p.web_search, p.prompt_over, p.prompt_above, p.above_price, p.note
from charges c
join price_versions p using (price_version)
where c.request_id = $1 and ($2::date[] is null or c.month = any($2::date[]))
order by c.admitted_at, c.account_id`,
  (p) => [p.requestId, p.months],
  (v) => ({ requestId: v[0], accountId: v[1], family: v[2], keyId: v[3], model: v[4], grantedOutput: v[5], hold: v[6], amount: v[7], overrun: v[8], outputOver: v[9], thinkingOver: v[10], outcome: v[11], basis: v[12], attempts: v[13], facts: v[14], tags: v[15], madeBy: v[16], admittedAt: v[17], settledAt: v[18], usedInput: v[19], usedOutput: v[20], usedThinking: v[21], usedCacheWrite5m: v[22], usedCacheWrite1h: v[23], usedCacheRead: v[24], usedWebSearches: v[25], priceVersion: v[26], input: v[27], output: v[28], thinking: v[29], cacheWrite5m: v[30], cacheWrite1h: v[31], cacheRead: v[32], webSearch: v[33], promptOver: v[34], promptAbove: v[35], abovePrice: v[36], note: v[37] }) as never,
  "facts tags madeBy promptOver promptAbove abovePrice",
);

export type FindSettledRow = { requestId: string; accountId: string; family: "v1" | "v2"; keyId: string; model: string; grantedOutput: number; hold: bigint; amount: bigint; overrun: bigint; outputOver: number; thinkingOver: number; outcome: string; basis: string; attempts: Json; facts: Json | null; tags: Json | null; madeBy: string | null; admittedAt: Date; settledAt: Date; usedInput: number; usedOutput: number; usedThinking: number; usedCacheWrite5m: number; usedCacheWrite1h: number; usedCacheRead: number; usedWebSearches: number; priceVersion: string; input: bigint; output: bigint; thinking: bigint; cacheWrite5m: bigint; cacheWrite1h: bigint; cacheRead: bigint; webSearch: bigint; promptOver: number | null; promptAbove: number | null; abovePrice: Json | null; note: string };
/**
 * Finds the charges of these requests with their prices, in the order of their settlement.
 * `months`: of the charges
 */
export const findSettled: Many<{ accountIds: readonly string[]; requestIds: readonly string[]; months: readonly string[] }, FindSettledRow> = many(
  "billing/find-settled",
  `-- billing/find-settled
select c.request_id, c.account_id, c."family", c.key_id, c.model, c.granted_output, c.hold,
  c.amount, c.overrun, c.output_over, c.thinking_over,
  c.outcome, c.basis, c.attempts, c.facts, c.tags, c.made_by, c.admitted_at, c.settled_at,
  c.input as used_input, c.output as used_output, c.thinking as used_thinking,
  c.cache_write_5m as used_cache_write_5m, c.cache_write_1h as used_cache_write_1h,
  c.cache_read as used_cache_read, c.web_searches as used_web_searches,
  p.price_version, p.input, p.output, p.thinking, p.cache_write_5m, p.cache_write_1h, p.cache_read,
  p.web_search, p.prompt_over, p.prompt_above, p.above_price, p.note
from unnest($1::text[], $2::text[], $3::date[])
  as d (account_id, request_id, month)
-- The offset makes the planner look up each request, rather than read whole months.
cross join lateral (
  select *
  from charges
  where account_id = d.account_id and request_id = d.request_id and month = d.month
  offset 0
) c
join price_versions p using (price_version)
order by c.settled_at, c.request_id`,
  (p) => [p.accountIds, p.requestIds, p.months],
  (v) => ({ requestId: v[0], accountId: v[1], family: v[2], keyId: v[3], model: v[4], grantedOutput: v[5], hold: v[6], amount: v[7], overrun: v[8], outputOver: v[9], thinkingOver: v[10], outcome: v[11], basis: v[12], attempts: v[13], facts: v[14], tags: v[15], madeBy: v[16], admittedAt: v[17], settledAt: v[18], usedInput: v[19], usedOutput: v[20], usedThinking: v[21], usedCacheWrite5m: v[22], usedCacheWrite1h: v[23], usedCacheRead: v[24], usedWebSearches: v[25], priceVersion: v[26], input: v[27], output: v[28], thinking: v[29], cacheWrite5m: v[30], cacheWrite1h: v[31], cacheRead: v[32], webSearch: v[33], promptOver: v[34], promptAbove: v[35], abovePrice: v[36], note: v[37] }) as never,
  "facts tags madeBy promptOver promptAbove abovePrice",
);

export type FindAmountsRow = { accountId: string; requestId: string; amountMicro: bigint };
/**
 * Finds the amounts of the charges that these requests have. A request without a row has no charge.
 */
export const findAmounts: Many<{ accountIds: readonly string[]; requestIds: readonly string[] }, FindAmountsRow> = many(
  "billing/find-amounts",
  `-- billing/find-amounts
select c.account_id, c.request_id, c.amount as amount_micro
from unnest($1::text[], $2::text[]) as asked (account_id, request_id)
join charges c on c.account_id = asked.account_id and c.request_id = asked.request_id`,
  (p) => [p.accountIds, p.requestIds],
  (v) => ({ accountId: v[0], requestId: v[1], amountMicro: v[2] }) as never,
  "",
);

export type FindHintRow = { accountId: string };
/**
 * Finds the accounts that have a secret whose hint begins and ends like this.
 * `first`: or empty
 * `last`: or empty
 */
export const findHint: Many<{ first: string; last: string }, FindHintRow> = many(
  "billing/find-hint",
  `-- billing/find-hint
select distinct k.account_id
from key_secrets s
join keys k using (key_id)
where starts_with(s.shown, $1) and right(s.shown, length($2)) = $2
limit 1000`,
  (p) => [p.first, p.last],
  (v) => ({ accountId: v[0] }) as never,
  "",
);

export type ReadSettledRow = { readAt: Date; accountId: string | null; requestId: string | null; month: string | null };
/**
 * Reads which charges of some accounts were settled since ten seconds before a time, newest first,
 * and the time of this read. One row without a charge if there is none.
 * The ten seconds: charges do not become visible in the order of `settled_at`, which is the time at
 * which their transaction began. A settlement runs for eight seconds at most, by the time limits of
 * its statements, so a charge that this read cannot see yet is in the range of the next one.
 * `since`: the time of the read before; null: now
 */
export const readSettled: Many<{ accountIds: readonly string[]; since: Date | string | null; rows: bigint | number }, ReadSettledRow> = many(
  "billing/read-settled",
  `-- billing/read-settled
select statement_timestamp() as read_at, c.account_id as account_id,
  c.request_id as request_id, c.month as month
from (select 1) as always
left join charges c
  on c.account_id = any($1::text[]) and c.amount >= 0
    and c.settled_at > coalesce($2::timestamptz, statement_timestamp()) - interval '10 seconds'
    -- True for every charge. Without an end, a plan for any time would read whole months.
    and c.settled_at < statement_timestamp() + interval '1 minute'
order by c.settled_at desc, c.request_id desc
limit $3`,
  (p) => [p.accountIds, p.since, p.rows],
  (v) => ({ readAt: v[0], accountId: v[1], requestId: v[2], month: v[3] }) as never,
  "accountId requestId month",
);

export type ListChargesRow = { requestId: string; accountId: string; family: "v1" | "v2"; keyId: string; model: string; grantedOutput: number; hold: bigint; amount: bigint; overrun: bigint; outputOver: number; thinkingOver: number; outcome: string; basis: string; attempts: Json; facts: Json | null; tags: Json | null; madeBy: string | null; admittedAt: Date; settledAt: Date; usedInput: number; usedOutput: number; usedThinking: number; usedCacheWrite5m: number; usedCacheWrite1h: number; usedCacheRead: number; usedWebSearches: number; priceVersion: string; input: bigint; output: bigint; thinking: bigint; cacheWrite5m: bigint; cacheWrite1h: bigint; cacheRead: bigint; webSearch: bigint; promptOver: number | null; promptAbove: number | null; abovePrice: Json | null; note: string; isMatch: boolean; isLast: boolean };
/**
 * Lists the charges of an account that match a filter, with their prices, newest first. Looks at a
 * limited number of charges. If it reaches the last of them, it returns that one too, matching or
 * not: the next page begins after it.
 * `least`: amount
 * `model`: null: any
 * `outcomes`: null: any
 * `tags`: those that each charge has; null: any
 * `madeBy`: null: any
 * `before`: the time of admission of the last row of the page before
 * `beforeId`: the request of the same row
 * `from`: the earliest time of admission
 * `looks`: charges to look at
 */
export const listCharges: Many<{ looks: bigint | number; least: bigint | number; model: string | null; outcomes: readonly string[] | null; tags: string | null; madeBy: string | null; accountId: string; before: Date | string; beforeId: string; from: Date | string; rows: bigint | number }, ListChargesRow> = many(
  "billing/list-charges",
  `-- billing/list-charges
select c.request_id, c.account_id, c."family", c.key_id, c.model, c.granted_output, c.hold,
  c.amount, c.overrun, c.output_over, c.thinking_over,
  c.outcome, c.basis, c.attempts, c.facts, c.tags, c.made_by, c.admitted_at, c.settled_at,
  c.input as used_input, c.output as used_output, c.thinking as used_thinking,
  c.cache_write_5m as used_cache_write_5m, c.cache_write_1h as used_cache_write_1h,
  c.cache_read as used_cache_read, c.web_searches as used_web_searches,
  p.price_version, p.input, p.output, p.thinking, p.cache_write_5m, p.cache_write_1h, p.cache_read,
  p.web_search, p.prompt_over, p.prompt_above, p.above_price, p.note,
  c.is_match as is_match, c.place = $1 as is_last
from (
  select *
  from (
    select *,
      amount >= $2 and ($3::text is null or model = $3)
        and ($4::text[] is null or outcome = any($4))
        and ($5::jsonb is null or coalesce(tags @> $5, false))
        and ($6::text is null or coalesce(made_by = $6, false)) as is_match,
      row_number() over (order by admitted_at desc, request_id desc) as place
    from charges
    where account_id = $7 and amount >= 0
      and (admitted_at, request_id) < ($8::timestamptz, $9)
      and admitted_at >= $10::timestamptz
      -- The month of a charge is that of its admission. This leaves out the other partitions.
      and month between date_trunc('month', $10 at time zone 'utc')::date
        and date_trunc('month', $8 at time zone 'utc')::date
    order by admitted_at desc, request_id desc
    limit $1
  ) looked
  where is_match or place = $1
  order by admitted_at desc, request_id desc
  limit $11
) c
join price_versions p using (price_version)
order by c.admitted_at desc, c.request_id desc`,
  (p) => [p.looks, p.least, p.model, p.outcomes, p.tags, p.madeBy, p.accountId, p.before, p.beforeId, p.from, p.rows],
  (v) => ({ requestId: v[0], accountId: v[1], family: v[2], keyId: v[3], model: v[4], grantedOutput: v[5], hold: v[6], amount: v[7], overrun: v[8], outputOver: v[9], thinkingOver: v[10], outcome: v[11], basis: v[12], attempts: v[13], facts: v[14], tags: v[15], madeBy: v[16], admittedAt: v[17], settledAt: v[18], usedInput: v[19], usedOutput: v[20], usedThinking: v[21], usedCacheWrite5m: v[22], usedCacheWrite1h: v[23], usedCacheRead: v[24], usedWebSearches: v[25], priceVersion: v[26], input: v[27], output: v[28], thinking: v[29], cacheWrite5m: v[30], cacheWrite1h: v[31], cacheRead: v[32], webSearch: v[33], promptOver: v[34], promptAbove: v[35], abovePrice: v[36], note: v[37], isMatch: v[38], isLast: v[39] }) as never,
  "facts tags madeBy promptOver promptAbove abovePrice",
);

export type ListKeyChargesRow = { requestId: string; accountId: string; family: "v1" | "v2"; keyId: string; model: string; grantedOutput: number; hold: bigint; amount: bigint; overrun: bigint; outputOver: number; thinkingOver: number; outcome: string; basis: string; attempts: Json; facts: Json | null; tags: Json | null; madeBy: string | null; admittedAt: Date; settledAt: Date; usedInput: number; usedOutput: number; usedThinking: number; usedCacheWrite5m: number; usedCacheWrite1h: number; usedCacheRead: number; usedWebSearches: number; priceVersion: string; input: bigint; output: bigint; thinking: bigint; cacheWrite5m: bigint; cacheWrite1h: bigint; cacheRead: bigint; webSearch: bigint; promptOver: number | null; promptAbove: number | null; abovePrice: Json | null; note: string; isMatch: boolean; isLast: boolean };
/**
 * Lists the charges of one key, as ListCharges does those of an account.
 */
export const listKeyCharges: Many<{ looks: bigint | number; least: bigint | number; model: string | null; outcomes: readonly string[] | null; tags: string | null; madeBy: string | null; accountId: string; keyId: string; before: Date | string; beforeId: string; from: Date | string; rows: bigint | number }, ListKeyChargesRow> = many(
  "billing/list-key-charges",
  `-- billing/list-key-charges
select c.request_id, c.account_id, c."family", c.key_id, c.model, c.granted_output, c.hold,
  c.amount, c.overrun, c.output_over, c.thinking_over,
  c.outcome, c.basis, c.attempts, c.facts, c.tags, c.made_by, c.admitted_at, c.settled_at,
  c.input as used_input, c.output as used_output, c.thinking as used_thinking,
  c.cache_write_5m as used_cache_write_5m, c.cache_write_1h as used_cache_write_1h,
  c.cache_read as used_cache_read, c.web_searches as used_web_searches,
  p.price_version, p.input, p.output, p.thinking, p.cache_write_5m, p.cache_write_1h, p.cache_read,
  p.web_search, p.prompt_over, p.prompt_above, p.above_price, p.note,
  c.is_match as is_match, c.place = $1 as is_last
from (
  select *
  from (
    select *,
      amount >= $2 and ($3::text is null or model = $3)
        and ($4::text[] is null or outcome = any($4))
        and ($5::jsonb is null or coalesce(tags @> $5, false))
        and ($6::text is null or coalesce(made_by = $6, false)) as is_match,
      row_number() over (order by admitted_at desc, request_id desc) as place
    from charges
    where account_id = $7 and key_id = $8 and amount >= 0
      and (admitted_at, request_id) < ($9::timestamptz, $10)
      and admitted_at >= $11::timestamptz
      -- The month of a charge is that of its admission. This leaves out the other partitions.
      and month between date_trunc('month', $11 at time zone 'utc')::date
        and date_trunc('month', $9 at time zone 'utc')::date
    order by admitted_at desc, request_id desc
    limit $1
  ) looked
  where is_match or place = $1
  order by admitted_at desc, request_id desc
  limit $12
) c
join price_versions p using (price_version)
order by c.admitted_at desc, c.request_id desc`,
  (p) => [p.looks, p.least, p.model, p.outcomes, p.tags, p.madeBy, p.accountId, p.keyId, p.before, p.beforeId, p.from, p.rows],
  (v) => ({ requestId: v[0], accountId: v[1], family: v[2], keyId: v[3], model: v[4], grantedOutput: v[5], hold: v[6], amount: v[7], overrun: v[8], outputOver: v[9], thinkingOver: v[10], outcome: v[11], basis: v[12], attempts: v[13], facts: v[14], tags: v[15], madeBy: v[16], admittedAt: v[17], settledAt: v[18], usedInput: v[19], usedOutput: v[20], usedThinking: v[21], usedCacheWrite5m: v[22], usedCacheWrite1h: v[23], usedCacheRead: v[24], usedWebSearches: v[25], priceVersion: v[26], input: v[27], output: v[28], thinking: v[29], cacheWrite5m: v[30], cacheWrite1h: v[31], cacheRead: v[32], webSearch: v[33], promptOver: v[34], promptAbove: v[35], abovePrice: v[36], note: v[37], isMatch: v[38], isLast: v[39] }) as never,
  "facts tags madeBy promptOver promptAbove abovePrice",
);

export type ExportChargesRow = { requestId: string; keyId: string; keyName: string | null; model: string; family: "v1" | "v2"; outcome: string; basis: string; grantedOutput: number; hold: bigint; amount: bigint; overrun: bigint; priceVersion: string; tags: Json | null; madeBy: string | null; admittedAt: string; settledAt: string; input: number; output: number; thinking: number; cacheWrite5m: number; cacheWrite1h: number; cacheRead: number; webSearches: number };
/**
 * Reads the charges of an account for an export, with the names of their keys, oldest first.
 * `after`: the time of admission of the last row of the page before
 * `afterId`: the request of the same row
 * `to`: exclusive
 */
export const exportCharges: Many<{ accountId: string; after: Date | string; afterId: string; to: Date | string; rows: bigint | number }, ExportChargesRow> = many(
  "billing/export-charges",
  `-- billing/export-charges
select c.request_id as request_id, c.key_id as key_id, k.name as key_name,
  c.model as model, c."family" as "family", upper(c.outcome) as outcome,
  upper(c.basis) as basis, c.granted_output as granted_output, c.hold as hold,
  c.amount as amount, c.overrun as overrun, c.price_version as price_version,
  c.tags as tags, c.made_by as made_by,
  to_char(c.admitted_at at time zone 'utc', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as admitted_at,
  to_char(c.settled_at at time zone 'utc', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as settled_at,
  c.input as input, c.output as output, c.thinking as thinking,
  c.cache_write_5m as cache_write_5m, c.cache_write_1h as cache_write_1h,
  c.cache_read as cache_read, c.web_searches as web_searches
from (
  select *
  from charges
  where account_id = $1 and amount >= 0
    and (admitted_at, request_id) > ($2::timestamptz, $3)
    and admitted_at < $4::timestamptz
    -- The month of a charge is that of its admission. This leaves out the other partitions.
    and month between date_trunc('month', $2 at time zone 'utc')::date
      and date_trunc('month', $4 at time zone 'utc')::date
  order by admitted_at, request_id
  limit $5
) c
left join keys k on k.key_id = c.key_id
order by c.admitted_at, c.request_id`,
  (p) => [p.accountId, p.after, p.afterId, p.to, p.rows],
  (v) => ({ requestId: v[0], keyId: v[1], keyName: v[2], model: v[3], family: v[4], outcome: v[5], basis: v[6], grantedOutput: v[7], hold: v[8], amount: v[9], overrun: v[10], priceVersion: v[11], tags: v[12], madeBy: v[13], admittedAt: v[14], settledAt: v[15], input: v[16], output: v[17], thinking: v[18], cacheWrite5m: v[19], cacheWrite1h: v[20], cacheRead: v[21], webSearches: v[22] }) as never,
  "keyName tags madeBy",
);

export type ExportKeyChargesRow = { requestId: string; keyId: string; keyName: string | null; model: string; family: "v1" | "v2"; outcome: string; basis: string; grantedOutput: number; hold: bigint; amount: bigint; overrun: bigint; priceVersion: string; tags: Json | null; madeBy: string | null; admittedAt: string; settledAt: string; input: number; output: number; thinking: number; cacheWrite5m: number; cacheWrite1h: number; cacheRead: number; webSearches: number };
/**
 * Reads the charges of one key for an export, as ExportCharges does those of an account.
 */
export const exportKeyCharges: Many<{ accountId: string; keyId: string; after: Date | string; afterId: string; to: Date | string; rows: bigint | number }, ExportKeyChargesRow> = many(
  "billing/export-key-charges",
  `-- billing/export-key-charges
select c.request_id as request_id, c.key_id as key_id, k.name as key_name,
  c.model as model, c."family" as "family", upper(c.outcome) as outcome,
  upper(c.basis) as basis, c.granted_output as granted_output, c.hold as hold,
  c.amount as amount, c.overrun as overrun, c.price_version as price_version,
  c.tags as tags, c.made_by as made_by,
  to_char(c.admitted_at at time zone 'utc', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as admitted_at,
  to_char(c.settled_at at time zone 'utc', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as settled_at,
  c.input as input, c.output as output, c.thinking as thinking,
  c.cache_write_5m as cache_write_5m, c.cache_write_1h as cache_write_1h,
  c.cache_read as cache_read, c.web_searches as web_searches
from (
  select *
  from charges
  where account_id = $1 and key_id = $2 and amount >= 0
    and (admitted_at, request_id) > ($3::timestamptz, $4)
    and admitted_at < $5::timestamptz
    -- The month of a charge is that of its admission. This leaves out the other partitions.
    and month between date_trunc('month', $3 at time zone 'utc')::date
      and date_trunc('month', $5 at time zone 'utc')::date
  order by admitted_at, request_id
  limit $6
) c
left join keys k on k.key_id = c.key_id
order by c.admitted_at, c.request_id`,
  (p) => [p.accountId, p.keyId, p.after, p.afterId, p.to, p.rows],
  (v) => ({ requestId: v[0], keyId: v[1], keyName: v[2], model: v[3], family: v[4], outcome: v[5], basis: v[6], grantedOutput: v[7], hold: v[8], amount: v[9], overrun: v[10], priceVersion: v[11], tags: v[12], madeBy: v[13], admittedAt: v[14], settledAt: v[15], input: v[16], output: v[17], thinking: v[18], cacheWrite5m: v[19], cacheWrite1h: v[20], cacheRead: v[21], webSearches: v[22] }) as never,
  "keyName tags madeBy",
);

// holds.sql

export type SettleHoldsRow = { accountId: string; requestId: string; hold: bigint; amount: bigint; overrun: bigint; settledAtMs: bigint };
/**
 * Turns holds into charges. The caller has locked the pools. A charge is at most its hold: the rest
 * of the cost, and the cost of output beyond the grant, is the overrun. The hold is released, the
 * charge is added to the budgets of the key and of the manager that the hold names, with the time
 * of their last use, and to the roll-up of the UTC hour of admission. There, a hold that is too
 * small covers the input and web searches first, then the cache, then thinking, then output.
 * Returns the charges. A request that was settled before has no hold and no row.
 * `priceVersions`: by which they are charged
 * `costsInput`: of the input and web searches
 * `costsCache`: of these and the cache
 * `costsThinking`: of these and thinking
 * `costsOver`: of the output and the thinking beyond the grant
 * `cachesSaved`: nano-credits that the prompt cache saved
 * `firstEvents`: the numbers of the counts of first events; null: there was none
 * `facts`: null: there are none
 * `input`: charged tokens, as the other categories
 */
export const settleHolds: Many<{ accountIds: readonly string[]; requestIds: readonly string[]; priceVersions: readonly string[]; costsInput: readonly (bigint | number)[]; costsCache: readonly (bigint | number)[]; costsThinking: readonly (bigint | number)[]; costs: readonly (bigint | number)[]; costsOver: readonly (bigint | number)[]; cachesSaved: readonly (bigint | number)[]; outputsOver: readonly number[]; thinkingsOver: readonly number[]; outcomes: readonly string[]; bases: readonly string[]; attempts: readonly string[]; firstEvents: readonly (number | null)[]; facts: readonly (string | null)[]; input: readonly number[]; output: readonly number[]; thinking: readonly number[]; cacheWrite5m: readonly number[]; cacheWrite1h: readonly number[]; cacheRead: readonly number[]; webSearches: readonly number[] }, SettleHoldsRow> = many(
  "billing/settle-holds",
  `-- billing/settle-holds
with today as materialized (
  select (now() at time zone 'utc')::date as today,
    date_trunc('week', now() at time zone 'utc')::date as monday,
    date_trunc('month', now() at time zone 'utc')::date as first
), ended as (
  delete from holds h
  using unnest($1::text[], $2::text[], $3::text[],
      $4::bigint[], $5::bigint[], $6::bigint[],
      $7::bigint[], $8::bigint[], $9::bigint[],
      $10::integer[], $11::integer[], $12::text[], $13::text[],
      $14::jsonb[], $15::integer[], $16::jsonb[],
      $17::integer[], $18::integer[], $19::integer[], $20::integer[],
      $21::integer[], $22::integer[], $23::integer[])
    as e (account_id, request_id, price_version, cost_input, cost_cache, cost_thinking, cost,
      cost_over, cache_saved,
      output_over, thinking_over, outcome, basis, attempts, first_event, facts,
      input, output, thinking, cache_write_5m, cache_write_1h, cache_read, web_searches)
  where h.account_id = e.account_id and h.request_id = e.request_id
  returning h.account_id, h.request_id, h.month, h."family", h.key_id, h.secret_id, h.model,
    e.price_version, h.admitted_at, h.granted_output, h.tags, h.made_by, h.manager,
    h.amount as hold, e.cost_input, e.cost_cache, e.cost_thinking, e.cost, e.cost_over,
    e.cache_saved, e.output_over, e.thinking_over, e.outcome, e.basis, e.attempts, e.first_event,
    e.facts,
    e.input, e.output, e.thinking, e.cache_write_5m, e.cache_write_1h, e.cache_read, e.web_searches
), charged as (
  insert into charges (account_id, request_id, month, "family", key_id, secret_id, model,
    price_version, admitted_at, granted_output, hold, amount, overrun, output_over, thinking_over,
    outcome, basis, attempts, settled_at, tags, made_by, manager, facts,
    input, output, thinking, cache_write_5m, cache_write_1h, cache_read, web_searches)
  select account_id, request_id, month, "family", key_id, secret_id, model, price_version,
    admitted_at, granted_output, hold, least(cost, hold), greatest(cost - hold, 0) + cost_over,
    output_over, thinking_over, outcome, basis, attempts, now(), tags, made_by, manager, facts,
    input, output, thinking, cache_write_5m, cache_write_1h, cache_read, web_searches
  from ended
  returning account_id, request_id, "family", key_id, manager, hold, amount, overrun, settled_at
), in_pools as (
  update pools p
  set posted = p.posted - d.amount, held = p.held - d.hold,
    -- A debt ends when the credits that are left cover the running holds.
    in_debt = p.in_debt and p.posted - d.amount < p.held - d.hold,
    spent = p.spent + d.amount, running = p.running - d.requests,
    day = greatest(p.day, t.today),
    day_base = case when p.day < t.today then p.spent else p.day_base end,
    week_base = case when p.day < t.monday then p.spent else p.week_base end,
    month_base = case when p.day < t.first then p.spent else p.month_base end
  from (
    select account_id, "family", sum(amount)::bigint as amount, sum(hold)::bigint as hold,
      count(*)::integer as requests
    from charged
    group by account_id, "family"
  ) d
  cross join today t
  where p.account_id = d.account_id and p."family" = d."family"
), in_budgets as (
  update budgets b
  set spent = b.spent + d.amount,
    held = case when b.is_limited then b.held - d.hold else 0 end,
    running = case when b.is_limited then b.running - d.requests else 0 end,
    last_used_at = greatest(b.last_used_at, now()),
    day = greatest(b.day, t.today),
    day_base = case when b.day < t.today then b.spent else b.day_base end,
    week_base = case when b.day < t.monday then b.spent else b.week_base end,
    month_base = case when b.day < t.first then b.spent else b.month_base end
  from (
    select account_id, "family", payer, sum(amount)::bigint as amount, sum(hold)::bigint as hold,
      count(*)::integer as requests
    from (
      select account_id, "family", key_id as payer, amount, hold from charged
      union all
      select account_id, "family", manager, amount, hold from charged where manager is not null
    ) payers
    group by account_id, "family", payer
  ) d
  cross join today t
  where b.account_id = d.account_id and b."family" = d."family" and b.payer = d.payer
), rolled_up as (
  insert into usage_hourly as u (account_id, key_id, model, hour,
    input, output, thinking, cache_write_5m, cache_write_1h, cache_read, web_searches,
    amount, amount_input, amount_output, amount_cache, amount_thinking,
    requests, completed, failed, cut,
    cache_saved, first_event_1, first_event_2, first_event_3, first_event_4, first_event_5,
    first_event_6, first_event_7, first_event_8, first_event_9, first_event_10, first_event_11,
    first_event_12, first_event_13, first_event_14, first_event_15, first_event_16, first_event_17,
    first_event_18, first_event_19, first_event_20, first_event_21)
  select account_id, key_id, model, date_trunc('hour', admitted_at, 'UTC'),
    sum(input), sum(output), sum(thinking), sum(cache_write_5m), sum(cache_write_1h),
    sum(cache_read), sum(web_searches),
    sum(least(cost, hold)),
    sum(least(cost_input, hold)),
    sum(least(cost, hold) - least(cost_thinking, hold)),
    sum(least(cost_cache, hold) - least(cost_input, hold)),
    sum(least(cost_thinking, hold) - least(cost_cache, hold)),
    count(*),
    count(*) filter (where outcome = 'completed'),
    count(*) filter (where outcome in ('provider_failed', 'provider_broke', 'gateway_failed',
      'reaped', 'input_above_hold')),
    count(*) filter (where outcome in ('client_left_before_acceptance',
      'client_left_before_content', 'client_left', 'revoked', 'time_limit')),
    sum(cache_saved),
    count(*) filter (where first_event = 1), count(*) filter (where first_event = 2),
    count(*) filter (where first_event = 3), count(*) filter (where first_event = 4),
    count(*) filter (where first_event = 5), count(*) filter (where first_event = 6),
    count(*) filter (where first_event = 7), count(*) filter (where first_event = 8),
    count(*) filter (where first_event = 9), count(*) filter (where first_event = 10),
    count(*) filter (where first_event = 11), count(*) filter (where first_event = 12),
    count(*) filter (where first_event = 13), count(*) filter (where first_event = 14),
    count(*) filter (where first_event = 15), count(*) filter (where first_event = 16),
    count(*) filter (where first_event = 17), count(*) filter (where first_event = 18),
    count(*) filter (where first_event = 19), count(*) filter (where first_event = 20),
    count(*) filter (where first_event = 21)
  from ended
  group by 1, 2, 3, 4
  order by 1, 4, 2, 3
  on conflict (account_id, hour, key_id, model) do update
  set (input, output, thinking, cache_write_5m, cache_write_1h, cache_read, web_searches,
      amount, amount_input, amount_output, amount_cache, amount_thinking,
      requests, completed, failed, cut,
      cache_saved, first_event_1, first_event_2, first_event_3, first_event_4, first_event_5,
      first_event_6, first_event_7, first_event_8, first_event_9, first_event_10, first_event_11,
      first_event_12, first_event_13, first_event_14, first_event_15, first_event_16,
      first_event_17, first_event_18, first_event_19, first_event_20, first_event_21) = row (
        u.input + excluded.input, u.output + excluded.output, u.thinking + excluded.thinking,
        u.cache_write_5m + excluded.cache_write_5m, u.cache_write_1h + excluded.cache_write_1h,
        u.cache_read + excluded.cache_read, u.web_searches + excluded.web_searches,
        u.amount + excluded.amount, u.amount_input + excluded.amount_input,
        u.amount_output + excluded.amount_output, u.amount_cache + excluded.amount_cache,
        u.amount_thinking + excluded.amount_thinking,
        u.requests + excluded.requests, u.completed + excluded.completed,
        u.failed + excluded.failed, u.cut + excluded.cut,
        u.cache_saved + excluded.cache_saved, u.first_event_1 + excluded.first_event_1,
        u.first_event_2 + excluded.first_event_2, u.first_event_3 + excluded.first_event_3,
        u.first_event_4 + excluded.first_event_4, u.first_event_5 + excluded.first_event_5,
        u.first_event_6 + excluded.first_event_6, u.first_event_7 + excluded.first_event_7,
        u.first_event_8 + excluded.first_event_8, u.first_event_9 + excluded.first_event_9,
        u.first_event_10 + excluded.first_event_10, u.first_event_11 + excluded.first_event_11,
        u.first_event_12 + excluded.first_event_12, u.first_event_13 + excluded.first_event_13,
        u.first_event_14 + excluded.first_event_14, u.first_event_15 + excluded.first_event_15,
        u.first_event_16 + excluded.first_event_16, u.first_event_17 + excluded.first_event_17,
        u.first_event_18 + excluded.first_event_18, u.first_event_19 + excluded.first_event_19,
        u.first_event_20 + excluded.first_event_20, u.first_event_21 + excluded.first_event_21)
)
select account_id, request_id, hold, amount, overrun,
  floor(extract(epoch from settled_at) * 1000)::bigint as settled_at_ms
from charged`,
  (p) => [p.accountIds, p.requestIds, p.priceVersions, p.costsInput, p.costsCache, p.costsThinking, p.costs, p.costsOver, p.cachesSaved, p.outputsOver, p.thinkingsOver, p.outcomes, p.bases, p.attempts, p.firstEvents, p.facts, p.input, p.output, p.thinking, p.cacheWrite5m, p.cacheWrite1h, p.cacheRead, p.webSearches],
  (v) => ({ accountId: v[0], requestId: v[1], hold: v[2], amount: v[3], overrun: v[4], settledAtMs: v[5] }) as never,
  "",
);

export type SettleHoldRow = { accountId: string; requestId: string; hold: bigint; amount: bigint; overrun: bigint; settledAtMs: bigint };
/**
 * Settles one hold as SettleHolds does, for a request that is alone in its batch: without sums over
 * requests it takes two thirds of the processor time. The caller has locked the pool. No row: the
 * request was settled before.
 * `priceVersion`: by which it is charged
 * `costInput`: of the input and web searches
 * `costCache`: of these and the cache
 * `costThinking`: of these and thinking
 * `costOver`: of the output and the thinking beyond the grant
 * `cacheSaved`: nano-credits that the prompt cache saved
 * `firstEvent`: the number of the count of its first event; null: there was none
 * `facts`: null: there are none
 * `input`: charged tokens, as the other categories
 */
export const settleHold: Optional<{ accountId: string; requestId: string; priceVersion: string; cost: bigint | number; costOver: bigint | number; outputOver: number; thinkingOver: number; outcome: string; basis: string; attempts: string; facts: string | null; input: number; output: number; thinking: number; cacheWrite5m: number; cacheWrite1h: number; cacheRead: number; webSearches: number; costInput: bigint | number; costThinking: bigint | number; costCache: bigint | number; cacheSaved: bigint | number; firstEvent: number | null }, SettleHoldRow> = optional(
  "billing/settle-hold",
  `-- billing/settle-hold
with today as materialized (
  select (now() at time zone 'utc')::date as today,
    date_trunc('week', now() at time zone 'utc')::date as monday,
    date_trunc('month', now() at time zone 'utc')::date as first
), ended as (
  delete from holds
  where account_id = $1 and request_id = $2
  returning account_id, request_id, month, "family", key_id, secret_id, model, admitted_at,
    granted_output, tags, made_by, manager, amount as hold
), charged as (
  insert into charges (account_id, request_id, month, "family", key_id, secret_id, model,
    price_version, admitted_at, granted_output, hold, amount, overrun, output_over, thinking_over,
    outcome, basis, attempts, settled_at, tags, made_by, manager, facts,
    input, output, thinking, cache_write_5m, cache_write_1h, cache_read, web_searches)
  select account_id, request_id, month, "family", key_id, secret_id, model, $3,
    admitted_at, granted_output, hold, least($4::bigint, hold),
    greatest($4 - hold, 0) + $5::bigint, $6, $7, $8::text,
    $9, $10::jsonb, now(), tags, made_by, manager, $11::jsonb,
    $12::integer, $13::integer, $14::integer, $15::integer,
    $16::integer, $17::integer, $18::integer
  from ended
  returning account_id, request_id, "family", key_id, manager, hold, amount, overrun, settled_at
), in_pool as (
  update pools p
  set posted = p.posted - c.amount, held = p.held - c.hold,
    -- A debt ends when the credits that are left cover the running holds.
    in_debt = p.in_debt and p.posted - c.amount < p.held - c.hold,
    spent = p.spent + c.amount, running = p.running - 1,
    day = greatest(p.day, t.today),
    day_base = case when p.day < t.today then p.spent else p.day_base end,
    week_base = case when p.day < t.monday then p.spent else p.week_base end,
    month_base = case when p.day < t.first then p.spent else p.month_base end
  from charged c
  cross join today t
  where p.account_id = c.account_id and p."family" = c."family"
), in_budgets as (
  update budgets b
  set spent = b.spent + c.amount,
    held = case when b.is_limited then b.held - c.hold else 0 end,
    running = case when b.is_limited then b.running - 1 else 0 end,
    last_used_at = greatest(b.last_used_at, now()),
    day = greatest(b.day, t.today),
    day_base = case when b.day < t.today then b.spent else b.day_base end,
    week_base = case when b.day < t.monday then b.spent else b.week_base end,
    month_base = case when b.day < t.first then b.spent else b.month_base end
  from charged c
  cross join today t
  where b.account_id = c.account_id and b."family" = c."family" and b.payer in (c.key_id, c.manager)
), rolled_up as (
  insert into usage_hourly as u (
    account_id, key_id, model, hour, input, output, thinking, cache_write_5m, cache_write_1h,
    cache_read, web_searches, amount, amount_input, amount_output, amount_cache, amount_thinking,
    requests, completed, failed, cut, cache_saved, first_event_1, first_event_2, first_event_3,
    first_event_4, first_event_5, first_event_6, first_event_7, first_event_8, first_event_9,
    first_event_10, first_event_11, first_event_12, first_event_13, first_event_14, first_event_15,
    first_event_16, first_event_17, first_event_18, first_event_19, first_event_20, first_event_21)
  select
    account_id, key_id, model, date_trunc('hour', admitted_at, 'UTC'), $12, $13, $14,
    $15, $16, $17, $18, least($4, hold),
    least($19, hold), least($4, hold) - least($20, hold),
    least($21, hold) - least($19, hold),
    least($20, hold) - least($21, hold), 1, ($8 = 'completed')::integer,
    ($8 in ('provider_failed', 'provider_broke', 'gateway_failed', 'reaped',
      'input_above_hold'))::integer,
    ($8 in ('client_left_before_acceptance', 'client_left_before_content', 'client_left',
      'revoked', 'time_limit'))::integer,
    $22::bigint, coalesce($23 = 1, false)::integer,
    coalesce($23 = 2, false)::integer, coalesce($23 = 3, false)::integer,
    coalesce($23 = 4, false)::integer, coalesce($23 = 5, false)::integer,
    coalesce($23 = 6, false)::integer, coalesce($23 = 7, false)::integer,
    coalesce($23 = 8, false)::integer, coalesce($23 = 9, false)::integer,
    coalesce($23 = 10, false)::integer, coalesce($23 = 11, false)::integer,
    coalesce($23 = 12, false)::integer, coalesce($23 = 13, false)::integer,
    coalesce($23 = 14, false)::integer, coalesce($23 = 15, false)::integer,
    coalesce($23 = 16, false)::integer, coalesce($23 = 17, false)::integer,
    coalesce($23 = 18, false)::integer, coalesce($23 = 19, false)::integer,
    coalesce($23 = 20, false)::integer, coalesce($23 = 21, false)::integer
  from ended
  on conflict (account_id, hour, key_id, model) do update set
    input = u.input + excluded.input, output = u.output + excluded.output,
    thinking = u.thinking + excluded.thinking,
    cache_write_5m = u.cache_write_5m + excluded.cache_write_5m,
    cache_write_1h = u.cache_write_1h + excluded.cache_write_1h,
    cache_read = u.cache_read + excluded.cache_read,
    web_searches = u.web_searches + excluded.web_searches, amount = u.amount + excluded.amount,
    amount_input = u.amount_input + excluded.amount_input,
    amount_output = u.amount_output + excluded.amount_output,
    amount_cache = u.amount_cache + excluded.amount_cache,
    amount_thinking = u.amount_thinking + excluded.amount_thinking,
    requests = u.requests + excluded.requests, completed = u.completed + excluded.completed,
    failed = u.failed + excluded.failed, cut = u.cut + excluded.cut,
    cache_saved = u.cache_saved + excluded.cache_saved,
    first_event_1 = u.first_event_1 + excluded.first_event_1,
    first_event_2 = u.first_event_2 + excluded.first_event_2,
    first_event_3 = u.first_event_3 + excluded.first_event_3,
    first_event_4 = u.first_event_4 + excluded.first_event_4,
    first_event_5 = u.first_event_5 + excluded.first_event_5,
    first_event_6 = u.first_event_6 + excluded.first_event_6,
    first_event_7 = u.first_event_7 + excluded.first_event_7,
    first_event_8 = u.first_event_8 + excluded.first_event_8,
    first_event_9 = u.first_event_9 + excluded.first_event_9,
    first_event_10 = u.first_event_10 + excluded.first_event_10,
    first_event_11 = u.first_event_11 + excluded.first_event_11,
    first_event_12 = u.first_event_12 + excluded.first_event_12,
    first_event_13 = u.first_event_13 + excluded.first_event_13,
    first_event_14 = u.first_event_14 + excluded.first_event_14,
    first_event_15 = u.first_event_15 + excluded.first_event_15,
    first_event_16 = u.first_event_16 + excluded.first_event_16,
    first_event_17 = u.first_event_17 + excluded.first_event_17,
    first_event_18 = u.first_event_18 + excluded.first_event_18,
    first_event_19 = u.first_event_19 + excluded.first_event_19,
    first_event_20 = u.first_event_20 + excluded.first_event_20,
    first_event_21 = u.first_event_21 + excluded.first_event_21
)
select account_id, request_id, hold, amount, overrun,
  floor(extract(epoch from settled_at) * 1000)::bigint as settled_at_ms
from charged`,
  (p) => [p.accountId, p.requestId, p.priceVersion, p.cost, p.costOver, p.outputOver, p.thinkingOver, p.outcome, p.basis, p.attempts, p.facts, p.input, p.output, p.thinking, p.cacheWrite5m, p.cacheWrite1h, p.cacheRead, p.webSearches, p.costInput, p.costThinking, p.costCache, p.cacheSaved, p.firstEvent],
  (v) => ({ accountId: v[0], requestId: v[1], hold: v[2], amount: v[3], overrun: v[4], settledAtMs: v[5] }) as never,
  "",
);

export type FindHoldsRow = { requestId: string; accountId: string; family: "v1" | "v2"; keyId: string; secretId: string | null; model: string; month: string; nonce: string; amount: bigint; grantedOutput: number; admittedAt: Date; tags: Json | null; madeBy: string | null; usedInput: number; usedOutput: number; usedThinking: number; usedCacheWrite5m: number; usedCacheWrite1h: number; usedCacheRead: number; usedWebSearches: number; priceVersion: string; input: bigint; output: bigint; thinking: bigint; cacheWrite5m: bigint; cacheWrite1h: bigint; cacheRead: bigint; webSearch: bigint; promptOver: number | null; promptAbove: number | null; abovePrice: Json | null; note: string };
/**
 * Finds the holds of those of these requests that run, with their prices.
 */
export const findHolds: Many<{ accountIds: readonly string[]; requestIds: readonly string[] }, FindHoldsRow> = many(
  "billing/find-holds",
  `-- billing/find-holds
select h.request_id, h.account_id, h."family", h.key_id, h.secret_id, h.model, h.month, h.nonce,
  h.amount, h.granted_output, h.admitted_at, h.tags, h.made_by,
  h.input as used_input, h.output as used_output, h.thinking as used_thinking,
  h.cache_write_5m as used_cache_write_5m, h.cache_write_1h as used_cache_write_1h,
  h.cache_read as used_cache_read, h.web_searches as used_web_searches,
  p.price_version, p.input, p.output, p.thinking, p.cache_write_5m, p.cache_write_1h, p.cache_read,
  p.web_search, p.prompt_over, p.prompt_above, p.above_price, p.note
from holds h
join unnest($1::text[], $2::text[]) as d (account_id, request_id)
  using (account_id, request_id)
join price_versions p using (price_version)`,
  (p) => [p.accountIds, p.requestIds],
  (v) => ({ requestId: v[0], accountId: v[1], family: v[2], keyId: v[3], secretId: v[4], model: v[5], month: v[6], nonce: v[7], amount: v[8], grantedOutput: v[9], admittedAt: v[10], tags: v[11], madeBy: v[12], usedInput: v[13], usedOutput: v[14], usedThinking: v[15], usedCacheWrite5m: v[16], usedCacheWrite1h: v[17], usedCacheRead: v[18], usedWebSearches: v[19], priceVersion: v[20], input: v[21], output: v[22], thinking: v[23], cacheWrite5m: v[24], cacheWrite1h: v[25], cacheRead: v[26], webSearch: v[27], promptOver: v[28], promptAbove: v[29], abovePrice: v[30], note: v[31] }) as never,
  "secretId tags madeBy promptOver promptAbove abovePrice",
);

export type FindRunningRow = { requestId: string; accountId: string; family: "v1" | "v2"; keyId: string; secretId: string | null; model: string; month: string; nonce: string; amount: bigint; grantedOutput: number; admittedAt: Date; tags: Json | null; madeBy: string | null; usedInput: number; usedOutput: number; usedThinking: number; usedCacheWrite5m: number; usedCacheWrite1h: number; usedCacheRead: number; usedWebSearches: number; priceVersion: string; input: bigint; output: bigint; thinking: bigint; cacheWrite5m: bigint; cacheWrite1h: bigint; cacheRead: bigint; webSearch: bigint; promptOver: number | null; promptAbove: number | null; abovePrice: Json | null; note: string };
/**
 * Finds the holds with a request id in all accounts, with their prices.
 */
export const findRunning: Many<{ requestId: string }, FindRunningRow> = many(
  "billing/find-running",
  `-- billing/find-running
select h.request_id, h.account_id, h."family", h.key_id, h.secret_id, h.model, h.month, h.nonce,
  h.amount, h.granted_output, h.admitted_at, h.tags, h.made_by,
  h.input as used_input, h.output as used_output, h.thinking as used_thinking,
  h.cache_write_5m as used_cache_write_5m, h.cache_write_1h as used_cache_write_1h,
  h.cache_read as used_cache_read, h.web_searches as used_web_searches,
  p.price_version, p.input, p.output, p.thinking, p.cache_write_5m, p.cache_write_1h, p.cache_read,
  p.web_search, p.prompt_over, p.prompt_above, p.above_price, p.note
from holds h
join price_versions p using (price_version)
where h.request_id = $1
order by h.admitted_at, h.account_id`,
  (p) => [p.requestId],
  (v) => ({ requestId: v[0], accountId: v[1], family: v[2], keyId: v[3], secretId: v[4], model: v[5], month: v[6], nonce: v[7], amount: v[8], grantedOutput: v[9], admittedAt: v[10], tags: v[11], madeBy: v[12], usedInput: v[13], usedOutput: v[14], usedThinking: v[15], usedCacheWrite5m: v[16], usedCacheWrite1h: v[17], usedCacheRead: v[18], usedWebSearches: v[19], priceVersion: v[20], input: v[21], output: v[22], thinking: v[23], cacheWrite5m: v[24], cacheWrite1h: v[25], cacheRead: v[26], webSearch: v[27], promptOver: v[28], promptAbove: v[29], abovePrice: v[30], note: v[31] }) as never,
  "secretId tags madeBy promptOver promptAbove abovePrice",
);

export type ListRunningOfRow = { requestId: string; accountId: string; family: "v1" | "v2"; keyId: string; secretId: string | null; model: string; month: string; nonce: string; amount: bigint; grantedOutput: number; admittedAt: Date; tags: Json | null; madeBy: string | null; usedInput: number; usedOutput: number; usedThinking: number; usedCacheWrite5m: number; usedCacheWrite1h: number; usedCacheRead: number; usedWebSearches: number; priceVersion: string; input: bigint; output: bigint; thinking: bigint; cacheWrite5m: bigint; cacheWrite1h: bigint; cacheRead: bigint; webSearch: bigint; promptOver: number | null; promptAbove: number | null; abovePrice: Json | null; note: string };
/**
 * Lists the requests of an account that hold credits, the oldest first, with their prices.
 * `afterAt`: only those admitted after this time; null: from the oldest
 * `afterId`: or at this time, with an id after this one
 */
export const listRunningOf: Many<{ accountId: string; afterAt: Date | string | null; afterId: string; rows: number }, ListRunningOfRow> = many(
  "billing/list-running-of",
  `-- billing/list-running-of
select h.request_id, h.account_id, h."family", h.key_id, h.secret_id, h.model, h.month, h.nonce,
  h.amount, h.granted_output, h.admitted_at, h.tags, h.made_by,
  h.input as used_input, h.output as used_output, h.thinking as used_thinking,
  h.cache_write_5m as used_cache_write_5m, h.cache_write_1h as used_cache_write_1h,
  h.cache_read as used_cache_read, h.web_searches as used_web_searches,
  p.price_version, p.input, p.output, p.thinking, p.cache_write_5m, p.cache_write_1h, p.cache_read,
  p.web_search, p.prompt_over, p.prompt_above, p.above_price, p.note
from holds h
join price_versions p using (price_version)
where h.account_id = $1
  and ($2::timestamptz is null
    or (h.admitted_at, h.request_id) > ($2, $3::text))
order by h.admitted_at, h.request_id
limit $4::integer`,
  (p) => [p.accountId, p.afterAt, p.afterId, p.rows],
  (v) => ({ requestId: v[0], accountId: v[1], family: v[2], keyId: v[3], secretId: v[4], model: v[5], month: v[6], nonce: v[7], amount: v[8], grantedOutput: v[9], admittedAt: v[10], tags: v[11], madeBy: v[12], usedInput: v[13], usedOutput: v[14], usedThinking: v[15], usedCacheWrite5m: v[16], usedCacheWrite1h: v[17], usedCacheRead: v[18], usedWebSearches: v[19], priceVersion: v[20], input: v[21], output: v[22], thinking: v[23], cacheWrite5m: v[24], cacheWrite1h: v[25], cacheRead: v[26], webSearch: v[27], promptOver: v[28], promptAbove: v[29], abovePrice: v[30], note: v[31] }) as never,
  "secretId tags madeBy promptOver promptAbove abovePrice",
);

export type AskToEndRow = { isAsked: boolean };
/**
 * Asks the node that runs a request to end it. No row: no such request runs. `is_asked` false: an
 * internal service holds it, which no node runs.
 */
export const askToEnd: Optional<{ accountId: string; requestId: string }, AskToEndRow> = optional(
  "billing/ask-to-end",
  `-- billing/ask-to-end
with running as (
  select account_id, request_id, node_id is not null as is_asked
  from holds
  where account_id = $1 and request_id = $2
), asked as (
  insert into ended_requests (account_id, request_id)
  select account_id, request_id from running where is_asked
  on conflict (account_id, request_id) do update set asked_at = now()
)
select is_asked as is_asked from running`,
  (p) => [p.accountId, p.requestId],
  (v) => ({ isAsked: v[0] }) as never,
  "",
);

export type TakeEndedRow = { accountId: string; requestId: string };
/**
 * Takes the requests of a node that it was asked to end. What ended by itself goes later.
 */
export const takeEnded: Many<{ nodeId: string }, TakeEndedRow> = many(
  "billing/take-ended",
  `-- billing/take-ended
delete from ended_requests e
where exists (
    select 1 from holds h
    where h.account_id = e.account_id and h.request_id = e.request_id and h.node_id = $1
  )
  or e.asked_at < now() - interval '10 minutes'
returning account_id, request_id`,
  (p) => [p.nodeId],
  (v) => ({ accountId: v[0], requestId: v[1] }) as never,
  "",
  2000,
);

export type FindOrphansRow = { requestId: string; accountId: string; family: "v1" | "v2"; keyId: string; secretId: string | null; model: string; month: string; nonce: string; amount: bigint; grantedOutput: number; admittedAt: Date; tags: Json | null; madeBy: string | null; usedInput: number; usedOutput: number; usedThinking: number; usedCacheWrite5m: number; usedCacheWrite1h: number; usedCacheRead: number; usedWebSearches: number; priceVersion: string; input: bigint; output: bigint; thinking: bigint; cacheWrite5m: bigint; cacheWrite1h: bigint; cacheRead: bigint; webSearch: bigint; promptOver: number | null; promptAbove: number | null; abovePrice: Json | null; note: string };
/**
 * Finds holds that no process will settle: holds past their deadline, of the given dead nodes, or
 * of nodes that no longer exist. Ordered by account and request id and paged, so that orphans that
 * cannot be settled do not hide the ones after them.
 * `afterAccountId`: of the last row of the page before; empty: from the first
 * `afterRequestId`: of the same row
 */
export const findOrphans: Many<{ nodeIds: readonly string[]; afterAccountId: string; afterRequestId: string; rows: bigint | number }, FindOrphansRow> = many(
  "billing/find-orphans",
  `-- billing/find-orphans
select h.request_id as request_id, h.account_id as account_id, h."family" as "family",
  h.key_id as key_id, h.secret_id as secret_id, h.model as model, h.month as month,
  h.nonce as nonce, h.amount as amount, h.granted_output as granted_output,
  h.admitted_at as admitted_at, h.tags as tags, h.made_by as made_by,
  h.input as used_input, h.output as used_output, h.thinking as used_thinking,
  h.cache_write_5m as used_cache_write_5m, h.cache_write_1h as used_cache_write_1h,
  h.cache_read as used_cache_read, h.web_searches as used_web_searches,
  p.price_version, p.input, p.output, p.thinking, p.cache_write_5m, p.cache_write_1h, p.cache_read,
  p.web_search, p.prompt_over, p.prompt_above, p.above_price, p.note
from (
  select * from holds where deadline < now()
  union
  select * from holds where node_id = any($1::text[])
  union
  select * from holds
  where node_id is not null
    and not exists (select 1 from nodes where nodes.node_id = holds.node_id)
) h
join price_versions p using (price_version)
where (h.account_id, h.request_id) > ($2, $3)
order by h.account_id, h.request_id
limit $4`,
  (p) => [p.nodeIds, p.afterAccountId, p.afterRequestId, p.rows],
  (v) => ({ requestId: v[0], accountId: v[1], family: v[2], keyId: v[3], secretId: v[4], model: v[5], month: v[6], nonce: v[7], amount: v[8], grantedOutput: v[9], admittedAt: v[10], tags: v[11], madeBy: v[12], usedInput: v[13], usedOutput: v[14], usedThinking: v[15], usedCacheWrite5m: v[16], usedCacheWrite1h: v[17], usedCacheRead: v[18], usedWebSearches: v[19], priceVersion: v[20], input: v[21], output: v[22], thinking: v[23], cacheWrite5m: v[24], cacheWrite1h: v[25], cacheRead: v[26], webSearch: v[27], promptOver: v[28], promptAbove: v[29], abovePrice: v[30], note: v[31] }) as never,
  "secretId tags madeBy promptOver promptAbove abovePrice",
);

export type FindOldestHoldRow = { day: string | null };
/**
 * Returns the UTC day of the oldest hold of all accounts; null if there is none.
 */
export const findOldestHold: One<undefined, FindOldestHoldRow> = one(
  "billing/find-oldest-hold",
  `-- billing/find-oldest-hold
select (min(admitted_at) at time zone 'utc')::date as day
from holds`,
  () => [],
  (v) => ({ day: v[0] }) as never,
  "day",
);

export type FindFirstRunningRow = { at: Date; today: string; closedTo: string; tagsTo: string; admittedAt: Date | null };
/**
 * Returns the database's time, how far the days and the tags of days are written, and when the
 * first running request of an account was admitted; null if none runs.
 * `keyIds`: null: all keys
 */
export const findFirstRunning: One<{ accountId: string; keyIds: readonly string[] | null }, FindFirstRunningRow> = one(
  "billing/find-first-running",
  `-- billing/find-first-running
select now() as at, (now() at time zone 'utc')::date as today, closed_to, tags_to,
  (
    select min(admitted_at)
    from holds
    where account_id = $1 and ($2::text[] is null or key_id = any($2))
  ) as admitted_at
from usage_progress`,
  (p) => [p.accountId, p.keyIds],
  (v) => ({ at: v[0], today: v[1], closedTo: v[2], tagsTo: v[3], admittedAt: v[4] }) as never,
  "admittedAt",
);

export type SumHoldsRow = { requests: bigint; heldMicro: bigint; oldestAdmittedAt: Date | null; firstDeadlineAt: Date | null };
/**
 * Sums the running requests of all accounts.
 */
export const sumHolds: One<undefined, SumHoldsRow> = one(
  "billing/sum-holds",
  `-- billing/sum-holds
select count(*)::bigint as requests, coalesce(sum(amount), 0)::bigint as held_micro,
  min(admitted_at) as oldest_admitted_at, min(deadline) as first_deadline_at
from holds`,
  () => [],
  (v) => ({ requests: v[0], heldMicro: v[1], oldestAdmittedAt: v[2], firstDeadlineAt: v[3] }) as never,
  "oldestAdmittedAt firstDeadlineAt",
);

export type LockHoldsRow = { accountId: string; requestId: string; amount: bigint; manager: string | null };
/**
 * Locks holds in the order of their ids. A settled request has no hold and no row.
 */
export const lockHolds: Many<{ accountIds: readonly string[]; requestIds: readonly string[] }, LockHoldsRow> = many(
  "billing/lock-holds",
  `-- billing/lock-holds
select h.account_id, h.request_id, h.amount, h.manager
from holds h
join unnest($1::text[], $2::text[]) as d (account_id, request_id)
  using (account_id, request_id)
order by h.account_id, h.request_id
for update of h`,
  (p) => [p.accountIds, p.requestIds],
  (v) => ({ accountId: v[0], requestId: v[1], amount: v[2], manager: v[3] }) as never,
  "manager",
);

/**
 * Changes the amounts of holds, and with them the held amounts of their pools and budgets. The
 * caller has locked the pools. A hold that no longer exists is ignored.
 * `mayGrow`: false: a larger amount is ignored, too
 */
export const resizeHolds: Run<{ accountIds: readonly string[]; requestIds: readonly string[]; amounts: readonly (bigint | number)[]; mayGrow: boolean }> = run(
  "billing/resize-holds",
  `-- billing/resize-holds
with resized as materialized (
  select h.request_id, h.account_id, h."family", h.key_id, h.manager,
    d.amount, d.amount - h.amount as added
  from holds h
  join unnest($1::text[], $2::text[], $3::bigint[])
    as d (account_id, request_id, amount)
    on h.account_id = d.account_id and h.request_id = d.request_id
  where (d.amount < h.amount or ($4::boolean and d.amount > h.amount))
), in_pools as (
  update pools
  set held = pools.held + d.added,
    in_debt = pools.in_debt and pools.posted < pools.held + d.added
  from (
    select account_id, "family", sum(added)::bigint as added
    from resized
    group by account_id, "family"
  ) d
  where pools.account_id = d.account_id and pools."family" = d."family"
), in_budgets as (
  update budgets b
  set held = b.held + d.added
  from (
    select account_id, "family", payer, sum(added)::bigint as added
    from (
      select account_id, "family", key_id as payer, added from resized
      union all
      select account_id, "family", manager, added from resized where manager is not null
    ) payers
    group by account_id, "family", payer
  ) d
  where b.account_id = d.account_id and b."family" = d."family" and b.payer = d.payer
    and b.is_limited
)
update holds
set amount = resized.amount
from resized
where holds.account_id = resized.account_id and holds.request_id = resized.request_id`,
  (p) => [p.accountIds, p.requestIds, p.amounts, p.mayGrow],
);

/**
 * Stores the metered usage of running requests; a count never decreases. Locks the holds in the
 * order of their ids, as settlement does. Changes the requests that still run.
 */
export const checkpointHolds: Run<{ accountIds: readonly string[]; requestIds: readonly string[]; input: readonly number[]; output: readonly number[]; thinking: readonly number[]; cacheWrite5m: readonly number[]; cacheWrite1h: readonly number[]; cacheRead: readonly number[]; webSearches: readonly number[] }> = run(
  "billing/checkpoint-holds",
  `-- billing/checkpoint-holds
with ordered as (
  select h.account_id, h.request_id
  from holds h
  join unnest($1::text[], $2::text[]) as d (account_id, request_id)
    using (account_id, request_id)
  order by h.account_id, h.request_id
  for update of h
)
update holds
set (input, output, thinking, cache_write_5m, cache_write_1h, cache_read, web_searches) = row (
      greatest(holds.input, d.input), greatest(holds.output, d.output),
      greatest(holds.thinking, d.thinking), greatest(holds.cache_write_5m, d.cache_write_5m),
      greatest(holds.cache_write_1h, d.cache_write_1h), greatest(holds.cache_read, d.cache_read),
      greatest(holds.web_searches, d.web_searches))
from ordered
join unnest($1::text[], $2::text[],
    $3::integer[], $4::integer[], $5::integer[], $6::integer[],
    $7::integer[], $8::integer[], $9::integer[])
  as d (account_id, request_id, input, output, thinking, cache_write_5m, cache_write_1h, cache_read,
    web_searches)
  using (account_id, request_id)
where holds.account_id = ordered.account_id and holds.request_id = ordered.request_id`,
  (p) => [p.accountIds, p.requestIds, p.input, p.output, p.thinking, p.cacheWrite5m, p.cacheWrite1h, p.cacheRead, p.webSearches],
);

/**
 * Releases a hold whose request was charged: the rest of a request that was used twice. The caller
 * has locked the pool.
 */
export const releaseHold: Run<{ accountId: string; requestId: string }> = run(
  "billing/release-hold",
  `-- billing/release-hold
with released as (
  delete from holds h using charges c
  where h.account_id = $1 and h.request_id = $2
    and c.account_id = h.account_id and c.request_id = h.request_id
  returning h.account_id, h."family", h.key_id, h.manager, h.amount
), in_pool as (
  update pools
  set held = pools.held - r.amount, running = pools.running - 1,
    in_debt = pools.in_debt and pools.posted < pools.held - r.amount
  from released r
  where pools.account_id = r.account_id and pools."family" = r."family"
)
update budgets b
set held = b.held - r.amount, running = b.running - 1
from released r
where b.account_id = r.account_id and b."family" = r."family"
  and b.payer in (r.key_id, r.manager) and b.is_limited`,
  (p) => [p.accountId, p.requestId],
);

// key-figures.sql

/**
 * Sets those limits of keys of one pool whose flag is true, and notes each that changes, as
 * NoteLimitChanges does. A budget knows what runs while it has a limit. The caller has locked the
 * pool.
 */
export const changeKeyLimits: Run<{ hasDay: boolean; dayLimit: bigint | number | null; hasWeek: boolean; weekLimit: bigint | number | null; hasMonth: boolean; monthLimit: bigint | number | null; hasTotal: boolean; totalLimit: bigint | number | null; hasRunning: boolean; runningLimit: number | null; accountId: string; family: "v1" | "v2"; keyIds: readonly string[] }> = run(
  "billing/change-key-limits",
  `-- billing/change-key-limits
with next as materialized (
  select payer, spent, day_limit as day_before, week_limit as week_before,
    month_limit as month_before, total_limit as total_before,
    case when $1::boolean then $2::bigint else day_limit end as day_limit,
    case when $3::boolean then $4::bigint else week_limit end as week_limit,
    case when $5::boolean then $6::bigint else month_limit end as month_limit,
    case when $7::boolean then $8::bigint else total_limit end as total_limit,
    case when $9::boolean then $10::integer else running_limit end
      as running_limit
  from budgets
  where account_id = $11 and "family" = $12 and payer = any($13::text[])
), noted as (
  insert into limit_changes (account_id, "family", payer, "window", changed_at, passed)
  select $11, $12, n.payer, w.name, clock_timestamp(),
    case when w.next > w.most then n.spent end
  from next n
  cross join lateral (
    values ('day', n.day_before, n.day_limit), ('week', n.week_before, n.week_limit),
      ('month', n.month_before, n.month_limit), ('total', n.total_before, n.total_limit)
  ) as w (name, most, next)
  where w.next is distinct from w.most
  on conflict (account_id, "family", payer, "window") do update
  set changed_at = excluded.changed_at, passed = excluded.passed
), running as (
  select key_id, sum(amount)::bigint as held, count(*)::integer as requests
  from holds
  where account_id = $11 and "family" = $12 and key_id = any($13)
  group by key_id
)
update budgets b
set day_limit = n.day_limit, week_limit = n.week_limit, month_limit = n.month_limit,
  total_limit = n.total_limit, running_limit = n.running_limit,
  held = case when l.is_limited then coalesce(r.held, 0) else 0 end,
  running = case when l.is_limited then coalesce(r.requests, 0) else 0 end
from next n
left join running r on r.key_id = n.payer
cross join lateral (
  select coalesce(n.day_limit, n.week_limit, n.month_limit, n.total_limit, n.running_limit)
    is not null as is_limited
) l
where b.account_id = $11 and b."family" = $12 and b.payer = n.payer`,
  (p) => [p.hasDay, p.dayLimit, p.hasWeek, p.weekLimit, p.hasMonth, p.monthLimit, p.hasTotal, p.totalLimit, p.hasRunning, p.runningLimit, p.accountId, p.family, p.keyIds],
);

export type SumKeyDaysRow = { keyId: string; place: number; amount: bigint };
/**
 * What keys of an account were charged on the last UTC days up to today, by the day of admission:
 * closed days from their sums, the others from their hours. No row: nothing.
 */
export const sumKeyDays: Many<{ days: number; accountId: string; keyIds: readonly string[] }, SumKeyDaysRow> = many(
  "billing/sum-key-days",
  `-- billing/sum-key-days
with days as (
  select (now() at time zone 'utc')::date - $1::int + 1 as first,
    (now() at time zone 'utc')::date as today,
    -- It may be far behind where days are not closed yet.
    greatest((select closed_to from usage_progress),
      (now() at time zone 'utc')::date - $1 + 1) as closed_to
)
select u.key_id as key_id, u.day - d.first as place, sum(u.amount)::bigint as amount
from days d
cross join lateral (
  select key_id, day, amount
  from usage_daily
  where account_id = $2 and day >= d.first and day < d.closed_to
    and key_id = any($3::text[])
  union all
  select key_id, (hour at time zone 'utc')::date, amount
  from usage_hourly
  where account_id = $2 and hour >= d.closed_to::timestamp at time zone 'utc'
    and key_id = any($3)
) u
where u.day between d.first and d.today
group by 1, 2
order by 1, 2`,
  (p) => [p.days, p.accountId, p.keyIds],
  (v) => ({ keyId: v[0], place: v[1], amount: v[2] }) as never,
  "",
  5000,
);

// limits.sql

/**
 * Notes which limits of credits of a payer's budget change, before they do, and what it has spent
 * in all by then where one is raised. The caller has locked the pool.
 * `payer`: empty: the whole pool
 */
export const noteLimitChanges: Run<{ accountId: string; family: "v1" | "v2"; payer: string; dayLimit: bigint | number | null; weekLimit: bigint | number | null; monthLimit: bigint | number | null; totalLimit: bigint | number | null }> = run(
  "billing/note-limit-changes",
  `-- billing/note-limit-changes
insert into limit_changes (account_id, "family", payer, "window", changed_at, passed)
select $1, $2, $3, w.name, clock_timestamp(),
  case when w.next > w.most then b.spent end
from (
  select spent, day_limit, week_limit, month_limit, total_limit
  from budgets
  where account_id = $1 and "family" = $2 and payer = $3
  union all
  select spent, day_limit, week_limit, month_limit, total_limit
  from pools
  where account_id = $1 and "family" = $2 and $3 = ''
) b
cross join lateral (
  values ('day', b.day_limit, $4::bigint), ('week', b.week_limit, $5::bigint),
    ('month', b.month_limit, $6::bigint), ('total', b.total_limit, $7::bigint)
) as w (name, most, next)
where w.next is distinct from w.most
on conflict (account_id, "family", payer, "window") do update
set changed_at = excluded.changed_at, passed = excluded.passed`,
  (p) => [p.accountId, p.family, p.payer, p.dayLimit, p.weekLimit, p.monthLimit, p.totalLimit],
);

// nodes.sql

/**
 * Registers a node as live.
 */
export const registerNode: Run<{ nodeId: string; process: string }> = run(
  "billing/register-node",
  `-- billing/register-node
insert into nodes (node_id, process) values ($1, $2)`,
  (p) => [p.nodeId, p.process],
);

export type NodeClockRow = { at: Date; month: string };
/**
 * Returns the database's time of this transaction and its UTC month, and locks the row of this node
 * against deletion. No row: the node was declared dead, and must not admit requests.
 */
export const nodeClock: Optional<{ nodeId: string }, NodeClockRow> = optional(
  "billing/node-clock",
  `-- billing/node-clock
select now() as at, date_trunc('month', now() at time zone 'utc')::date as month
from nodes
where node_id = $1
for key share`,
  (p) => [p.nodeId],
  (v) => ({ at: v[0], month: v[1] }) as never,
  "",
);

export type ListNodesRow = { nodeId: string; startedAt: Date; silentPolls: number; report: Json | null; reportedAt: Date | null };
/**
 * Lists all nodes, in the order of their starts.
 */
export const listNodes: Many<undefined, ListNodesRow> = many(
  "billing/list-nodes",
  `-- billing/list-nodes
select node_id, started_at, silent_polls, report, reported_at
from nodes
order by node_id`,
  () => [],
  (v) => ({ nodeId: v[0], startedAt: v[1], silentPolls: v[2], report: v[3], reportedAt: v[4] }) as never,
  "report reportedAt",
);

export type PollNodesRow = { nodeId: string; process: string; silentPolls: number };
/**
 * Counts a poll of every other node, and returns all nodes with the polls since their last
 * heartbeat. The count is in the database, so it goes on when the polling process is replaced; it
 * stands still while no process reaches the database. However many processes poll, a node is
 * counted once per interval. Rows are locked in the order of their ids, and in a mode that
 * admissions, which lock the row of their node against deletion, do not wait for.
 */
export const pollNodes: Many<{ nodeId: string; intervalMs: number }, PollNodesRow> = many(
  "billing/poll-nodes",
  `-- billing/poll-nodes
with due as (
  select node_id
  from nodes
  where node_id <> $1
    and polled_at <= now() - $2::integer * interval '1 millisecond'
  order by node_id
  for no key update
), counted as (
  update nodes
  set silent_polls = silent_polls + 1, polled_at = now()
  from due
  where nodes.node_id = due.node_id
  returning nodes.node_id, nodes.silent_polls
)
select n.node_id as node_id, n.process as process,
  coalesce(c.silent_polls, n.silent_polls) as silent_polls
from nodes n
left join counted c on n.node_id = c.node_id
order by n.node_id`,
  (p) => [p.nodeId, p.intervalMs],
  (v) => ({ nodeId: v[0], process: v[1], silentPolls: v[2] }) as never,
  "",
  2000,
);

/**
 * Records a heartbeat of a node. Changes no row: the node was declared dead. The time limit is
 * shorter than the silence after which a node is dead: a heartbeat that a lost network swallowed is
 * sent again on another connection.
 */
export const recordHeartbeat: Run<{ nodeId: string }> = run(
  "billing/record-heartbeat",
  `-- billing/record-heartbeat
update nodes set silent_polls = 0, polled_at = now() where node_id = $1`,
  (p) => [p.nodeId],
  2000,
);

/**
 * Stores how a node describes itself.
 */
export const reportNode: Run<{ report: string; nodeId: string }> = run(
  "billing/report-node",
  `-- billing/report-node
update nodes set report = $1, reported_at = now() where node_id = $2`,
  (p) => [p.report, p.nodeId],
);

/**
 * Removes a node that stopped or died, unless holds of it are left.
 */
export const deleteNode: Run<{ nodeId: string }> = run(
  "billing/delete-node",
  `-- billing/delete-node
delete from nodes
where node_id = $1 and not exists (select 1 from holds where node_id = $1)`,
  (p) => [p.nodeId],
);

// pools.sql

export type FindLowPoolsRow = { accountId: string; family: "v1" | "v2"; belowMicro: bigint; freeMicro: bigint; filledBy: string | null };
/**
 * Finds the pools with fewer free credits than a bound. filled_by is the last transfer after which
 * the pool had at least the bound; null: it never had. A pool that was never filled is left out.
 * `bounds`: in micro-credits
 */
export const findLowPools: Many<{ accountIds: readonly string[]; families: readonly ("v1" | "v2")[]; bounds: readonly (bigint | number)[] }, FindLowPoolsRow> = many(
  "billing/find-low-pools",
  `-- billing/find-low-pools
select p.account_id, p."family", w.below as below_micro, p.posted - p.held as free_micro,
  (
    select t.transfer_id
    from transfers t
    where t.account_id = p.account_id and t."family" = p."family" and t.amount > 0
      and t.posted_after >= w.below
    order by t.transfer_id desc
    limit 1
  ) as filled_by
from unnest($1::text[], $2::text[], $3::bigint[])
  as w (account_id, "family", below)
join pools p on p.account_id = w.account_id and p."family" = w."family"
where p.posted - p.held < w.below
  and exists (
    select 1
    from transfers t
    where t.account_id = p.account_id and t."family" = p."family" and t.amount > 0
  )`,
  (p) => [p.accountIds, p.families, p.bounds],
  (v) => ({ accountId: v[0], family: v[1], belowMicro: v[2], freeMicro: v[3], filledBy: v[4] }) as never,
  "filledBy",
);

export type ReadPoolsRow = { family: "v1" | "v2"; posted: bigint; held: bigint };
/**
 * Reads both pools of an account. No row: no such account.
 */
export const readPools: Many<{ accountId: string }, ReadPoolsRow> = many(
  "billing/read-pools",
  `-- billing/read-pools
select "family", posted, held from pools where account_id = $1 order by "family"`,
  (p) => [p.accountId],
  (v) => ({ family: v[0], posted: v[1], held: v[2] }) as never,
  "",
);

export type ReadAccountsPoolsRow = { accountId: string; family: "v1" | "v2"; posted: bigint; held: bigint };
/**
 * Reads the pools of accounts.
 */
export const readAccountsPools: Many<{ accountIds: readonly string[] }, ReadAccountsPoolsRow> = many(
  "billing/read-accounts-pools",
  `-- billing/read-accounts-pools
select account_id, "family", posted, held
from pools
where account_id = any($1::text[])
order by account_id, "family"`,
  (p) => [p.accountIds],
  (v) => ({ accountId: v[0], family: v[1], posted: v[2], held: v[3] }) as never,
  "",
);

export type ReadSpendingRow = { family: "v1" | "v2"; free: bigint; held: bigint; amount: bigint; firstDay: string | null; usedBefore: boolean; filledTo: bigint | null; today: string; at: Date; budget: bigint[] };
/**
 * Reads what each pool of an account has free and held, what was charged to it on the last full UTC
 * days, since when it is used: the first of these days or today, or `used_before`; what it had
 * after it was last filled; and its budget.
 * `days`: how many full days
 */
export const readSpending: Many<{ accountId: string; days: number }, ReadSpendingRow> = many(
  "billing/read-spending",
  `-- billing/read-spending
select p."family" as "family", p.posted - p.held as free, p.held as held,
  coalesce(s.amount, 0)::bigint as amount, s.first_day as first_day,
  b.used_before as used_before, f.filled_to as filled_to,
  (now() at time zone 'utc')::date as today, now() as at,
  array[p.day - date '1970-01-01', p.spent, p.held, p.running, p.day_base, p.week_base,
    p.month_base, p.total_base, coalesce(p.day_limit, -1), coalesce(p.week_limit, -1),
    coalesce(p.month_limit, -1), coalesce(p.total_limit, -1),
    coalesce(p.running_limit, -1)] as budget
from pools p
left join (
  select k."family", (min(u.hour) at time zone 'utc')::date as first_day,
    sum(u.amount) filter (where u.hour < date_trunc('day', now(), 'UTC')) as amount
  from usage_hourly u
  join keys k on k.account_id = u.account_id and k.key_id = u.key_id
  where u.account_id = $1
    and u.hour >= date_trunc('day', now(), 'UTC') - $2::integer * interval '1 day'
  group by k."family"
) s using ("family")
cross join usage_progress g
cross join lateral (
  select exists (
    select 1
    from usage_hourly u
    join keys k on k.account_id = u.account_id and k.key_id = u.key_id
    where u.account_id = $1 and k."family" = p."family"
      and u.hour < date_trunc('day', now(), 'UTC') - $2::integer * interval '1 day'
      -- The closed days have the hours before: of a family without use, all of them are looked at.
      and u.hour >= g.closed_to::timestamp at time zone 'utc'
  ) or exists (
    select 1
    from usage_daily u
    join keys k on k.account_id = u.account_id and k.key_id = u.key_id
    where u.account_id = $1 and k."family" = p."family"
      and u.day < (now() at time zone 'utc')::date - $2::integer
  ) as used_before
) b
left join lateral (
  select t.posted_after as filled_to
  from transfers t
  where t.account_id = $1 and t."family" = p."family" and t.amount > 0
  order by t.transfer_id desc
  limit 1
) f on true
where p.account_id = $1
order by p."family"`,
  (p) => [p.accountId, p.days],
  (v) => ({ family: v[0], free: v[1], held: v[2], amount: v[3], firstDay: v[4], usedBefore: v[5], filledTo: v[6], today: v[7], at: v[8], budget: v[9] }) as never,
  "firstDay filledTo",
);

export type ListDebtsRow = { accountId: string; debt: bigint };
/**
 * Lists the accounts with a pool in debt, and what its pools lack together.
 */
export const listDebts: Many<{ rows: bigint | number }, ListDebtsRow> = many(
  "billing/list-debts",
  `-- billing/list-debts
select account_id, sum(greatest(held - posted, 0))::bigint as debt
from pools
where in_debt
group by account_id
order by account_id desc
limit $1`,
  (p) => [p.rows],
  (v) => ({ accountId: v[0], debt: v[1] }) as never,
  "",
);

export type LockAccountPoolsRow = { family: "v1" | "v2"; posted: bigint; held: bigint; inDebt: boolean };
/**
 * Locks both pools of an account: no request of it is admitted meanwhile.
 */
export const lockAccountPools: Many<{ accountId: string }, LockAccountPoolsRow> = many(
  "billing/lock-account-pools",
  `-- billing/lock-account-pools
select "family", posted, held, in_debt
from pools
where account_id = $1
order by "family"
for update`,
  (p) => [p.accountId],
  (v) => ({ family: v[0], posted: v[1], held: v[2], inDebt: v[3] }) as never,
  "",
);

export type LockPoolRow = { posted: bigint; held: bigint; inDebt: boolean; accountStatus: "active" | "suspended" | "closed" };
/**
 * Locks the pool of a transfer or of a hold to release. No row: no such account.
 */
export const lockPool: Optional<{ accountId: string; family: "v1" | "v2" }, LockPoolRow> = optional(
  "billing/lock-pool",
  `-- billing/lock-pool
select posted, held, in_debt, account_status
from pools
where account_id = $1 and "family" = $2
for update`,
  (p) => [p.accountId, p.family],
  (v) => ({ posted: v[0], held: v[1], inDebt: v[2], accountStatus: v[3] }) as never,
  "",
);

/**
 * Adds a transfer to its pool. The caller has locked the pool. A pool is in debt while it has less
 * than its running requests hold.
 * `amount`: signed
 */
export const postToPool: Run<{ amount: bigint | number; accountId: string; family: "v1" | "v2" }> = run(
  "billing/post-to-pool",
  `-- billing/post-to-pool
update pools
set posted = posted + $1, in_debt = posted + $1 < held
where account_id = $2 and "family" = $3`,
  (p) => [p.amount, p.accountId, p.family],
);

/**
 * Copies the status of an account to its pools, which the caller has locked.
 */
export const setPoolsStatus: Run<{ status: "active" | "suspended" | "closed"; accountId: string }> = run(
  "billing/set-pools-status",
  `-- billing/set-pools-status
update pools set account_status = $1 where account_id = $2`,
  (p) => [p.status, p.accountId],
);

// price-lists.sql

/**
 * Makes a price list without a version. Unique violation: the name is taken.
 */
export const insertPriceList: Run<{ priceListId: string; name: string; madeBy: string }> = run(
  "billing/insert-price-list",
  `-- billing/insert-price-list
insert into price_lists (price_list_id, name, made_by) values ($1, $2, $3)`,
  (p) => [p.priceListId, p.name, p.madeBy],
);

export type LockPriceListRow = { name: string };
/**
 * Locks a price list. No row: no such list.
 */
export const lockPriceList: Optional<{ priceListId: string }, LockPriceListRow> = optional(
  "billing/lock-price-list",
  `-- billing/lock-price-list
select name from price_lists where price_list_id = $1 for update`,
  (p) => [p.priceListId],
  (v) => ({ name: v[0] }) as never,
  "",
);

export type ReadNewestVersionRow = { newest: number | null };
/**
 * Reads the number of the newest version of a price list that the caller has locked. A statement
 * of its own: one that waits for the lock sees the versions of before the wait.
 */
export const readNewestVersion: One<{ priceListId: string }, ReadNewestVersionRow> = one(
  "billing/read-newest-version",
  `-- billing/read-newest-version
select max(n) as newest from price_list_versions where price_list_id = $1`,
  (p) => [p.priceListId],
  (v) => ({ newest: v[0] }) as never,
  "newest",
);

export type CountPriceListsRow = { lists: number; named: number };
/**
 * Counts the price lists, and those with a name.
 */
export const countPriceLists: One<{ name: string }, CountPriceListsRow> = one(
  "billing/count-price-lists",
  `-- billing/count-price-lists
select count(*)::integer as lists,
  (count(*) filter (where name = $1))::integer as named
from price_lists`,
  (p) => [p.name],
  (v) => ({ lists: v[0], named: v[1] }) as never,
  "",
);

/**
 * Adds a version to a price list that the caller has locked or made.
 */
export const insertPriceListVersion: Run<{ priceListId: string; n: number; discountBp: number; models: string; reason: string; madeBy: string }> = run(
  "billing/insert-price-list-version",
  `-- billing/insert-price-list-version
insert into price_list_versions (price_list_id, n, discount_bp, models, reason, made_by)
values ($1, $2, $3, $4, $5, $6)`,
  (p) => [p.priceListId, p.n, p.discountBp, p.models, p.reason, p.madeBy],
);

export type ReadPriceListsRow = { priceListId: string; name: string; listMadeAt: Date; n: number; discountBp: number; models: Json; reason: string; madeBy: string; madeAt: Date; accounts: number };
/**
 * Reads the newest version of each price list, in the order of their names.
 */
export const readPriceLists: Many<undefined, ReadPriceListsRow> = many(
  "billing/read-price-lists",
  `-- billing/read-price-lists
select l.price_list_id as price_list_id, l.name as name, l.made_at as list_made_at,
  v.n as n, v.discount_bp as discount_bp, v.models as models, v.reason as reason,
  v.made_by as made_by, v.made_at as made_at,
  (select count(*) from accounts a where a.price_list_id = l.price_list_id)::integer
    as accounts
from price_lists l
cross join lateral (
  select *
  from price_list_versions
  where price_list_id = l.price_list_id
  order by n desc
  limit 1
) v
order by l.name`,
  () => [],
  (v) => ({ priceListId: v[0], name: v[1], listMadeAt: v[2], n: v[3], discountBp: v[4], models: v[5], reason: v[6], madeBy: v[7], madeAt: v[8], accounts: v[9] }) as never,
  "",
);

export type ReadListsInForceRow = { priceListId: string; name: string; n: number; discountBp: number; models: Json };
/**
 * Reads what the newest version of each price list says.
 */
export const readListsInForce: Many<undefined, ReadListsInForceRow> = many(
  "billing/read-lists-in-force",
  `-- billing/read-lists-in-force
select l.price_list_id as price_list_id, l.name as name, v.n as n,
  v.discount_bp as discount_bp, v.models as models
from price_lists l
cross join lateral (
  select *
  from price_list_versions
  where price_list_id = l.price_list_id
  order by n desc
  limit 1
) v`,
  () => [],
  (v) => ({ priceListId: v[0], name: v[1], n: v[2], discountBp: v[3], models: v[4] }) as never,
  "",
);

export type ReadAccountsOfListRow = { accounts: number; digest: string };
/**
 * Counts the accounts that have a price list, and names them by one digest. The list is locked:
 * nobody gives it meanwhile.
 */
export const readAccountsOfList: One<{ priceListId: string }, ReadAccountsOfListRow> = one(
  "billing/read-accounts-of-list",
  `-- billing/read-accounts-of-list
select count(*)::integer as accounts,
  coalesce(md5(string_agg(account_id, ' ' order by account_id)), '') as digest
from accounts
where price_list_id = $1`,
  (p) => [p.priceListId],
  (v) => ({ accounts: v[0], digest: v[1] }) as never,
  "",
);

export type SetPriceListRow = { accountId: string; name: string; createdAt: Date; status: "active" | "suspended" | "closed"; statusReason: string; statusChangedAt: Date | null; billingName: string; billingAddress: string; billingTaxId: string; priceListId: string | null; priceListAt: Date | null };
/**
 * Gives an account a price list. The caller has locked the account.
 * `priceListId`: null: the public prices
 */
export const setPriceList: One<{ priceListId: string | null; accountId: string }, SetPriceListRow> = one(
  "billing/set-price-list",
  `-- billing/set-price-list
update accounts
set price_list_id = $1, price_list_at = now()
where account_id = $2
returning account_id, name, created_at, status, status_reason, status_changed_at, billing_name,
  billing_address, billing_tax_id, price_list_id, price_list_at`,
  (p) => [p.priceListId, p.accountId],
  (v) => ({ accountId: v[0], name: v[1], createdAt: v[2], status: v[3], statusReason: v[4], statusChangedAt: v[5], billingName: v[6], billingAddress: v[7], billingTaxId: v[8], priceListId: v[9], priceListAt: v[10] }) as never,
  "statusChangedAt priceListId priceListAt",
);

export type FindPriceListRow = { priceListId: string | null };
/**
 * Finds the price list of an account. No row: no such account.
 */
export const findPriceList: Optional<{ accountId: string }, FindPriceListRow> = optional(
  "billing/find-price-list",
  `-- billing/find-price-list
select price_list_id from accounts where account_id = $1`,
  (p) => [p.accountId],
  (v) => ({ priceListId: v[0] }) as never,
  "priceListId",
);

// prices.sql

/**
 * Stores a price version, unless it is stored already.
 */
export const registerPrice: Run<{ priceVersion: string; model: string; input: bigint | number; output: bigint | number; thinking: bigint | number; cacheWrite5m: bigint | number; cacheWrite1h: bigint | number; cacheRead: bigint | number; webSearch: bigint | number; promptOver: number | null; promptAbove: number | null; abovePrice: string | null; note: string }> = run(
  "billing/register-price",
  `-- billing/register-price
insert into price_versions (price_version, model,
  input, output, thinking, cache_write_5m, cache_write_1h, cache_read, web_search,
  prompt_over, prompt_above, above_price, note)
values ($1, $2,
  $3, $4, $5, $6, $7, $8, $9,
  $10, $11, $12, $13)
on conflict do nothing`,
  (p) => [p.priceVersion, p.model, p.input, p.output, p.thinking, p.cacheWrite5m, p.cacheWrite1h, p.cacheRead, p.webSearch, p.promptOver, p.promptAbove, p.abovePrice, p.note],
);

export type ListPricesRow = { priceVersion: string; model: string; input: bigint; output: bigint; thinking: bigint; cacheWrite5m: bigint; cacheWrite1h: bigint; cacheRead: bigint; webSearch: bigint; promptOver: number | null; promptAbove: number | null; abovePrice: Json | null; note: string; createdAt: Date };
/**
 * Lists every price at which a request was ever admitted, by model, newest first.
 */
export const listPrices: Many<undefined, ListPricesRow> = many(
  "billing/list-prices",
  `-- billing/list-prices
select price_version, model, input, output, thinking, cache_write_5m, cache_write_1h, cache_read,
  web_search, prompt_over, prompt_above, above_price, note, created_at
from price_versions
order by model, created_at desc`,
  () => [],
  (v) => ({ priceVersion: v[0], model: v[1], input: v[2], output: v[3], thinking: v[4], cacheWrite5m: v[5], cacheWrite1h: v[6], cacheRead: v[7], webSearch: v[8], promptOver: v[9], promptAbove: v[10], abovePrice: v[11], note: v[12], createdAt: v[13] }) as never,
  "promptOver promptAbove abovePrice",
);

// rejections.sql

/**
 * Adds counts of rejected requests: each account, hour, key and reason once. Sorted, so that
 * processes that add at the same time wait for each other in the same order.
 * `lasts`: when the last of them was rejected
 */
export const addErrors: Run<{ accountIds: readonly string[]; hours: readonly (Date | string)[]; keyIds: readonly string[]; reasons: readonly string[]; counts: readonly (bigint | number)[]; lasts: readonly (Date | string)[] }> = run(
  "billing/add-errors",
  `-- billing/add-errors
insert into errors_hourly (account_id, hour, key_id, reason, requests, last_at)
select account_id, hour, key_id, reason, requests, last_at
from unnest($1::text[], $2::timestamptz[], $3::text[], $4::text[],
    $5::bigint[], $6::timestamptz[])
  as e (account_id, hour, key_id, reason, requests, last_at)
order by account_id, hour, key_id, reason
on conflict (account_id, hour, key_id, reason) do update
set requests = errors_hourly.requests + excluded.requests,
  last_at = greatest(errors_hourly.last_at, excluded.last_at)`,
  (p) => [p.accountIds, p.hours, p.keyIds, p.reasons, p.counts, p.lasts],
);

/**
 * Stores refused requests: at most 100 of a key and 500 of an account in an hour, as far as
 * processes see each other's. One that was refused before is replaced.
 * `ats`: the last time of each
 * `facts`: JSON
 */
export const addRefusals: Run<{ requestIds: readonly string[]; accountIds: readonly string[]; keyIds: readonly string[]; ats: readonly (Date | string)[]; reasons: readonly string[]; models: readonly string[]; facts: readonly string[] }> = run(
  "billing/add-refusals",
  `-- billing/add-refusals
with new as (
  select u.*, date_trunc('hour', u.at, 'UTC') as hour
  from unnest($1::text[], $2::text[], $3::text[], $4::timestamptz[],
      $5::text[], $6::text[], $7::text[])
    as u (request_id, account_id, key_id, at, reason, model, facts)
), of_keys as (
  select n.*
  from (
    select *, row_number() over (partition by key_id, hour order by at) as place
    from new
  ) n
  join (
    select d.key_id, d.hour, (
        select count(*)
        from refusals r
        where r.key_id = d.key_id and r.at >= d.hour and r.at < d.hour + interval '1 hour'
      ) as stored
    from (select distinct key_id, hour from new) d
  ) k on k.key_id = n.key_id and k.hour = n.hour
  where n.place + k.stored <= 100
), of_accounts as (
  select n.*
  from (
    select *, row_number() over (partition by account_id, hour order by at) as account_place
    from of_keys
  ) n
  join (
    select d.account_id, d.hour, (
        select count(*)
        from refusals r
        where r.account_id = d.account_id and r.at >= d.hour
          and r.at < d.hour + interval '1 hour'
      ) as stored
    from (select distinct account_id, hour from of_keys) d
  ) a on a.account_id = n.account_id and a.hour = n.hour
  where n.account_place + a.stored <= 500
)
insert into refusals as r (request_id, account_id, key_id, at, reason, model, facts)
select request_id, account_id, key_id, at, reason, model, facts::jsonb
from of_accounts
order by request_id, account_id
on conflict (request_id, account_id) do update
set key_id = excluded.key_id, at = excluded.at, reason = excluded.reason, model = excluded.model,
  facts = excluded.facts
where r.at < excluded.at`,
  (p) => [p.requestIds, p.accountIds, p.keyIds, p.ats, p.reasons, p.models, p.facts],
);

export type FindRefusalsRow = { requestId: string; accountId: string; keyId: string; at: Date; reason: string; model: string; facts: Json };
/**
 * Finds the refused requests with an id in all accounts, newest first.
 */
export const findRefusals: Many<{ requestId: string }, FindRefusalsRow> = many(
  "billing/find-refusals",
  `-- billing/find-refusals
select request_id, account_id, key_id, at, reason, model, facts
from refusals
where request_id = $1 and at > now() - interval '7 days'
order by at desc
limit 100`,
  (p) => [p.requestId],
  (v) => ({ requestId: v[0], accountId: v[1], keyId: v[2], at: v[3], reason: v[4], model: v[5], facts: v[6] }) as never,
  "",
);

export type FindRequestsRow = { kind: string; accountId: string; model: string; at: Date };
/**
 * Finds the running, charged and refused requests with an id in all accounts. One statement: a
 * request that is settled meanwhile is found once.
 * `months`: of the charges
 */
export const findRequests: Many<{ requestId: string; months: readonly string[] }, FindRequestsRow> = many(
  "billing/find-requests",
  `-- billing/find-requests
select 'request' as kind, account_id as account_id, model as model, admitted_at as at
from holds
where request_id = $1
union all
(
  select 'request', account_id, model, admitted_at
  from charges
  where request_id = $1 and month = any($2::date[])
  order by admitted_at, account_id
  limit 100
)
union all
(
  select 'refusal', account_id, model, at
  from refusals
  where request_id = $1 and at > now() - interval '7 days'
  order by at desc
  limit 100
)`,
  (p) => [p.requestId, p.months],
  (v) => ({ kind: v[0], accountId: v[1], model: v[2], at: v[3] }) as never,
  "",
);

/**
 * Removes refused requests that are too old to be found, the oldest first.
 * `rows`: at most
 */
export const removeRefusals: Run<{ rows: bigint | number }> = run(
  "billing/remove-refusals",
  `-- billing/remove-refusals
delete from refusals
where (request_id, account_id) in (
  select request_id, account_id
  from refusals
  where at <= now() - interval '7 days'
  order by at
  limit $1
)`,
  (p) => [p.rows],
);

export type QueryErrorsRow = { isTotal: boolean; period: Date | null; keyId: string; reason: string; requests: bigint };
/**
 * Counts rejected requests by time, key and reason. Returns the sum of all rows first, marked
 * `is_total`, then one page of rows.
 * `bucket`: hour, day, month or none
 * `to`: exclusive
 * `keyIds`: null: all
 * `afterPeriod`: of the last row of the page before; null: from the first
 * `afterKeyId`: of the same row
 * `afterReason`: of the same row
 */
export const queryErrors: Many<{ bucket: string; from: Date | string; byKey: boolean; byReason: boolean; accountId: string; to: Date | string; keyIds: readonly string[] | null; afterPeriod: Date | string | null; afterKeyId: string | null; afterReason: string | null; rows: bigint | number }, QueryErrorsRow> = many(
  "billing/query-errors",
  `-- billing/query-errors
with grouped as (
  select
    case $1::text
      when 'none' then $2::timestamptz
      when 'hour' then hour
      else date_trunc($1, hour, 'UTC')
    end as period,
    case when $3 then key_id else '' end as key_id,
    case when $4 then reason else '' end as reason,
    sum(requests)::bigint as requests
  from errors_hourly
  where account_id = $5 and hour >= $2 and hour < $6
    and ($7::text[] is null or key_id = any($7))
  group by 1, 2, 3
), page as (
  select *
  from grouped
  where $8::timestamptz is null
    or (period, key_id, reason) > ($8, $9, $10)
  order by period, key_id, reason
  limit $11
)
select true as is_total, null as period, '' as key_id, '' as reason,
  coalesce(sum(requests), 0)::bigint as requests
from grouped
union all
select false, period, key_id, reason, requests
from page
order by is_total desc, period, key_id, reason`,
  (p) => [p.bucket, p.from, p.byKey, p.byReason, p.accountId, p.to, p.keyIds, p.afterPeriod, p.afterKeyId, p.afterReason, p.rows],
  (v) => ({ isTotal: v[0], period: v[1], keyId: v[2], reason: v[3], requests: v[4] }) as never,
  "period",
);

/**
 * Removes the counts of rejected requests of some accounts before a UTC day.
 */
export const removeErrors: Run<{ accountIds: readonly string[]; day: string }> = run(
  "billing/remove-errors",
  `-- billing/remove-errors
delete from errors_hourly e
using unnest($1::text[]) as a (account_id)
where e.account_id = a.account_id and e.hour < $2::date::timestamp at time zone 'utc'`,
  (p) => [p.accountIds, p.day],
);

// transfers.sql

export type InsertTransferRow = { transferId: string; accountId: string; family: "v1" | "v2"; kind: "purchase" | "bonus" | "refund" | "chargeback" | "adjustment" | "deposit"; amount: bigint; postedAfter: bigint; idempotencyKey: string; reason: string; actor: string; createdAt: Date };
/**
 * Stores a transfer. The caller has locked its pool.
 * `amount`: signed
 * `postedAfter`: what the pool has posted with this transfer
 */
export const insertTransfer: One<{ transferId: string; accountId: string; family: "v1" | "v2"; kind: "purchase" | "bonus" | "refund" | "chargeback" | "adjustment" | "deposit"; amount: bigint | number; idempotencyKey: string; reason: string; actor: string; postedAfter: bigint | number }, InsertTransferRow> = one(
  "billing/insert-transfer",
  `-- billing/insert-transfer
insert into transfers
  (transfer_id, account_id, "family", kind, amount, idempotency_key, reason, actor, posted_after)
values ($1, $2, $3, $4, $5, $6, $7, $8,
  $9)
returning transfer_id, account_id, "family", kind, amount, posted_after, idempotency_key, reason,
  actor, created_at`,
  (p) => [p.transferId, p.accountId, p.family, p.kind, p.amount, p.idempotencyKey, p.reason, p.actor, p.postedAfter],
  (v) => ({ transferId: v[0], accountId: v[1], family: v[2], kind: v[3], amount: v[4], postedAfter: v[5], idempotencyKey: v[6], reason: v[7], actor: v[8], createdAt: v[9] }) as never,
  "",
);

export type FindTransferRow = { transferId: string; accountId: string; family: "v1" | "v2"; kind: "purchase" | "bonus" | "refund" | "chargeback" | "adjustment" | "deposit"; amount: bigint; postedAfter: bigint; idempotencyKey: string; reason: string; actor: string; createdAt: Date };
/**
 * Finds the transfer that was made with an idempotency key.
 */
export const findTransfer: Optional<{ accountId: string; idempotencyKey: string }, FindTransferRow> = optional(
  "billing/find-transfer",
  `-- billing/find-transfer
select transfer_id, account_id, "family", kind, amount, posted_after, idempotency_key, reason,
  actor, created_at
from transfers
where account_id = $1 and idempotency_key = $2`,
  (p) => [p.accountId, p.idempotencyKey],
  (v) => ({ transferId: v[0], accountId: v[1], family: v[2], kind: v[3], amount: v[4], postedAfter: v[5], idempotencyKey: v[6], reason: v[7], actor: v[8], createdAt: v[9] }) as never,
  "",
);

export type ListTransfersRow = { transferId: string; accountId: string; family: "v1" | "v2"; kind: "purchase" | "bonus" | "refund" | "chargeback" | "adjustment" | "deposit"; amount: bigint; postedAfter: bigint; idempotencyKey: string; reason: string; actor: string; createdAt: Date };
/**
 * Lists the transfers of an account, newest first.
 * `before`: the last one of the page before; null: from the newest
 */
export const listTransfers: Many<{ accountId: string; before: string | null; rows: bigint | number }, ListTransfersRow> = many(
  "billing/list-transfers",
  `-- billing/list-transfers
select transfer_id, account_id, "family", kind, amount, posted_after, idempotency_key, reason,
  actor, created_at
from transfers
where account_id = $1 and ($2::text is null or transfer_id < $2)
order by transfer_id desc
limit $3`,
  (p) => [p.accountId, p.before, p.rows],
  (v) => ({ transferId: v[0], accountId: v[1], family: v[2], kind: v[3], amount: v[4], postedAfter: v[5], idempotencyKey: v[6], reason: v[7], actor: v[8], createdAt: v[9] }) as never,
  "",
);

export type FindTransfersRow = { transferId: string; accountId: string; family: "v1" | "v2"; kind: "purchase" | "bonus" | "refund" | "chargeback" | "adjustment" | "deposit"; amount: bigint; postedAfter: bigint; idempotencyKey: string; reason: string; actor: string; createdAt: Date };
/**
 * Finds the transfers of a range, newest first.
 * `accountId`: null: of all accounts
 * `to`: exclusive; null: up to now
 * `after`: the last one of the page before
 * `first`: an id below those of the range
 * `last`: an id above those of the range
 */
export const findTransfers: Many<{ accountId: string | null; from: Date | string; to: Date | string | null; first: string; last: string; after: string | null; rows: bigint | number }, FindTransfersRow> = many(
  "billing/find-transfers",
  `-- billing/find-transfers
select transfer_id, account_id, "family", kind, amount, posted_after, idempotency_key, reason,
  actor, created_at
from transfers
where ($1::text is null or account_id = $1)
  and created_at >= $2 and ($3::timestamptz is null or created_at < $3)
  and transfer_id > $4 and transfer_id < $5
  and ($6::text is null or transfer_id < $6)
order by transfer_id desc
limit $7`,
  (p) => [p.accountId, p.from, p.to, p.first, p.last, p.after, p.rows],
  (v) => ({ transferId: v[0], accountId: v[1], family: v[2], kind: v[3], amount: v[4], postedAfter: v[5], idempotencyKey: v[6], reason: v[7], actor: v[8], createdAt: v[9] }) as never,
  "",
);

// usage.sql

/**
 * Writes the sums of a UTC day of some accounts from their hours, over what is written already.
 */
export const writeDay: Run<{ day: string; accountIds: readonly string[] }> = run(
  "billing/write-day",
  `-- billing/write-day
insert into usage_daily (account_id, day, key_id, model,
  input, output, thinking, cache_write_5m, cache_write_1h, cache_read, web_searches,
  amount, amount_input, amount_output, amount_cache, amount_thinking,
  requests, completed, failed, cut,
  cache_saved, first_event_1, first_event_2, first_event_3, first_event_4, first_event_5,
  first_event_6, first_event_7, first_event_8, first_event_9, first_event_10, first_event_11,
  first_event_12, first_event_13, first_event_14, first_event_15, first_event_16, first_event_17,
  first_event_18, first_event_19, first_event_20, first_event_21)
select h.account_id, $1::date, key_id, model,
  sum(input)::bigint, sum(output)::bigint, sum(thinking)::bigint, sum(cache_write_5m)::bigint,
  sum(cache_write_1h)::bigint, sum(cache_read)::bigint, sum(web_searches)::bigint,
  sum(amount)::bigint, sum(amount_input)::bigint, sum(amount_output)::bigint,
  sum(amount_cache)::bigint, sum(amount_thinking)::bigint,
  sum(requests)::bigint, sum(completed)::bigint, sum(failed)::bigint, sum(cut)::bigint,
  sum(cache_saved)::bigint, sum(first_event_1)::bigint, sum(first_event_2)::bigint,
  sum(first_event_3)::bigint, sum(first_event_4)::bigint, sum(first_event_5)::bigint,
  sum(first_event_6)::bigint, sum(first_event_7)::bigint, sum(first_event_8)::bigint,
  sum(first_event_9)::bigint, sum(first_event_10)::bigint, sum(first_event_11)::bigint,
  sum(first_event_12)::bigint, sum(first_event_13)::bigint, sum(first_event_14)::bigint,
  sum(first_event_15)::bigint, sum(first_event_16)::bigint, sum(first_event_17)::bigint,
  sum(first_event_18)::bigint, sum(first_event_19)::bigint, sum(first_event_20)::bigint,
  sum(first_event_21)::bigint
from unnest($2::text[]) as a (account_id)
cross join lateral (
  select *
  from usage_hourly
  where account_id = a.account_id and hour >= $1::date::timestamp at time zone 'utc'
    and hour < ($1::date + 1)::timestamp at time zone 'utc'
  offset 0
) h
group by h.account_id, key_id, model
on conflict (account_id, day, key_id, model) do update
set (input, output, thinking, cache_write_5m, cache_write_1h, cache_read, web_searches,
    amount, amount_input, amount_output, amount_cache, amount_thinking,
    requests, completed, failed, cut,
    cache_saved, first_event_1, first_event_2, first_event_3, first_event_4, first_event_5,
    first_event_6, first_event_7, first_event_8, first_event_9, first_event_10, first_event_11,
    first_event_12, first_event_13, first_event_14, first_event_15, first_event_16, first_event_17,
    first_event_18, first_event_19, first_event_20, first_event_21) = row (
      excluded.input, excluded.output, excluded.thinking, excluded.cache_write_5m,
      excluded.cache_write_1h, excluded.cache_read, excluded.web_searches,
      excluded.amount, excluded.amount_input, excluded.amount_output, excluded.amount_cache,
      excluded.amount_thinking,
      excluded.requests, excluded.completed, excluded.failed, excluded.cut,
      excluded.cache_saved, excluded.first_event_1, excluded.first_event_2, excluded.first_event_3,
      excluded.first_event_4, excluded.first_event_5, excluded.first_event_6,
      excluded.first_event_7, excluded.first_event_8, excluded.first_event_9,
      excluded.first_event_10, excluded.first_event_11, excluded.first_event_12,
      excluded.first_event_13, excluded.first_event_14, excluded.first_event_15,
      excluded.first_event_16, excluded.first_event_17, excluded.first_event_18,
      excluded.first_event_19, excluded.first_event_20, excluded.first_event_21)`,
  (p) => [p.day, p.accountIds],
);

/**
 * Adds the hours of a UTC day of some accounts to its sums. For a day whose hours were removed
 * before: these hours are new.
 */
export const addToDay: Run<{ day: string; accountIds: readonly string[] }> = run(
  "billing/add-to-day",
  `-- billing/add-to-day
insert into usage_daily as u (account_id, day, key_id, model,
  input, output, thinking, cache_write_5m, cache_write_1h, cache_read, web_searches,
  amount, amount_input, amount_output, amount_cache, amount_thinking,
  requests, completed, failed, cut,
  cache_saved, first_event_1, first_event_2, first_event_3, first_event_4, first_event_5,
  first_event_6, first_event_7, first_event_8, first_event_9, first_event_10, first_event_11,
  first_event_12, first_event_13, first_event_14, first_event_15, first_event_16, first_event_17,
  first_event_18, first_event_19, first_event_20, first_event_21)
select h.account_id, $1::date, key_id, model,
  sum(input)::bigint, sum(output)::bigint, sum(thinking)::bigint, sum(cache_write_5m)::bigint,
  sum(cache_write_1h)::bigint, sum(cache_read)::bigint, sum(web_searches)::bigint,
  sum(amount)::bigint, sum(amount_input)::bigint, sum(amount_output)::bigint,
  sum(amount_cache)::bigint, sum(amount_thinking)::bigint,
  sum(requests)::bigint, sum(completed)::bigint, sum(failed)::bigint, sum(cut)::bigint,
  sum(cache_saved)::bigint, sum(first_event_1)::bigint, sum(first_event_2)::bigint,
  sum(first_event_3)::bigint, sum(first_event_4)::bigint, sum(first_event_5)::bigint,
  sum(first_event_6)::bigint, sum(first_event_7)::bigint, sum(first_event_8)::bigint,
  sum(first_event_9)::bigint, sum(first_event_10)::bigint, sum(first_event_11)::bigint,
  sum(first_event_12)::bigint, sum(first_event_13)::bigint, sum(first_event_14)::bigint,
  sum(first_event_15)::bigint, sum(first_event_16)::bigint, sum(first_event_17)::bigint,
  sum(first_event_18)::bigint, sum(first_event_19)::bigint, sum(first_event_20)::bigint,
  sum(first_event_21)::bigint
from unnest($2::text[]) as a (account_id)
cross join lateral (
  select *
  from usage_hourly
  where account_id = a.account_id and hour >= $1::date::timestamp at time zone 'utc'
    and hour < ($1::date + 1)::timestamp at time zone 'utc'
  offset 0
) h
group by h.account_id, key_id, model
on conflict (account_id, day, key_id, model) do update
set (input, output, thinking, cache_write_5m, cache_write_1h, cache_read, web_searches,
    amount, amount_input, amount_output, amount_cache, amount_thinking,
    requests, completed, failed, cut,
    cache_saved, first_event_1, first_event_2, first_event_3, first_event_4, first_event_5,
    first_event_6, first_event_7, first_event_8, first_event_9, first_event_10, first_event_11,
    first_event_12, first_event_13, first_event_14, first_event_15, first_event_16, first_event_17,
    first_event_18, first_event_19, first_event_20, first_event_21) = row (
      u.input + excluded.input, u.output + excluded.output, u.thinking + excluded.thinking,
      u.cache_write_5m + excluded.cache_write_5m, u.cache_write_1h + excluded.cache_write_1h,
      u.cache_read + excluded.cache_read, u.web_searches + excluded.web_searches,
      u.amount + excluded.amount, u.amount_input + excluded.amount_input,
      u.amount_output + excluded.amount_output, u.amount_cache + excluded.amount_cache,
      u.amount_thinking + excluded.amount_thinking,
      u.requests + excluded.requests, u.completed + excluded.completed, u.failed + excluded.failed,
      u.cut + excluded.cut,
      u.cache_saved + excluded.cache_saved, u.first_event_1 + excluded.first_event_1,
      u.first_event_2 + excluded.first_event_2, u.first_event_3 + excluded.first_event_3,
      u.first_event_4 + excluded.first_event_4, u.first_event_5 + excluded.first_event_5,
      u.first_event_6 + excluded.first_event_6, u.first_event_7 + excluded.first_event_7,
      u.first_event_8 + excluded.first_event_8, u.first_event_9 + excluded.first_event_9,
      u.first_event_10 + excluded.first_event_10, u.first_event_11 + excluded.first_event_11,
      u.first_event_12 + excluded.first_event_12, u.first_event_13 + excluded.first_event_13,
      u.first_event_14 + excluded.first_event_14, u.first_event_15 + excluded.first_event_15,
      u.first_event_16 + excluded.first_event_16, u.first_event_17 + excluded.first_event_17,
      u.first_event_18 + excluded.first_event_18, u.first_event_19 + excluded.first_event_19,
      u.first_event_20 + excluded.first_event_20, u.first_event_21 + excluded.first_event_21)`,
  (p) => [p.day, p.accountIds],
);

/**
 * Writes the sums of the tags of a UTC day of some accounts from their charges. No sum of the day
 * may be there. An account keeps the values of a day that cost most, of all its tags together; the
 * others of each tag are one value, `(other)`.
 * `kept`: how many it keeps
 */
export const writeTags: Run<{ day: string; kept: bigint | number; accountIds: readonly string[] }> = run(
  "billing/write-tags",
  `-- billing/write-tags
insert into tags_daily (account_id, day, tag, value, key_id, model,
  input, output, thinking, cache_write_5m, cache_write_1h, cache_read, web_searches,
  amount, amount_input, amount_output, amount_cache, amount_thinking,
  requests, completed, failed, cut)
select account_id, $1::date, tag, case when place <= $2 then value else '(other)' end,
  key_id, model,
  sum(input)::bigint, sum(output)::bigint, sum(thinking)::bigint, sum(cache_write_5m)::bigint,
  sum(cache_write_1h)::bigint, sum(cache_read)::bigint, sum(web_searches)::bigint,
  sum(amount)::bigint, sum(amount_input)::bigint, sum(amount_output)::bigint,
  sum(amount_cache)::bigint, sum(amount_thinking)::bigint,
  sum(requests)::bigint, sum(completed)::bigint, sum(failed)::bigint, sum(cut)::bigint
from (
  select *, dense_rank() over (partition by account_id order by value_amount desc, tag, value)
    as place
  from (
    select *, sum(amount) over (partition by account_id, tag, value) as value_amount
    from (
      select c.account_id, t.tag, t.value, c.key_id, c.model,
        sum(c.input) as input, sum(c.output) as output, sum(c.thinking) as thinking,
        sum(c.cache_write_5m) as cache_write_5m, sum(c.cache_write_1h) as cache_write_1h,
        sum(c.cache_read) as cache_read, sum(c.web_searches) as web_searches,
        sum(c.amount) as amount, sum(c.amount_input) as amount_input,
        sum(c.amount_output) as amount_output, sum(c.amount_cache) as amount_cache,
        sum(c.amount_thinking) as amount_thinking,
        sum(c.requests) as requests, sum(c.completed) as completed, sum(c.failed) as failed,
        sum(c.cut) as cut
      from unnest($3::text[]) as a (account_id)
      cross join lateral (
        select *
        from charge_sums
        where account_id = a.account_id and tags is not null
          and month = date_trunc('month', $1::date::timestamp)::date
          and admitted_at >= $1::date::timestamp at time zone 'utc'
          and admitted_at < ($1::date + 1)::timestamp at time zone 'utc'
        offset 0
      ) c
      cross join lateral jsonb_each_text(c.tags) as t (tag, value)
      group by c.account_id, t.tag, t.value, c.key_id, c.model
    ) summed
  ) weighed
) ranked
group by account_id, tag, 4, key_id, model`,
  (p) => [p.day, p.kept, p.accountIds],
);

export type CountHoursRow = { accountId: string; rows: number };
/**
 * Counts the hours of a UTC day of the next accounts.
 */
export const countHours: Many<{ after: string; accounts: bigint | number; day: string }, CountHoursRow> = many(
  "billing/count-hours",
  `-- billing/count-hours
select a.account_id as account_id, h.rows as rows
from (
  select account_id from accounts where account_id > $1 order by account_id limit $2
) a
cross join lateral (
  select count(*)::integer as rows
  from usage_hourly
  where account_id = a.account_id and hour >= $3::date::timestamp at time zone 'utc'
    and hour < ($3::date + 1)::timestamp at time zone 'utc'
) h
order by a.account_id`,
  (p) => [p.after, p.accounts, p.day],
  (v) => ({ accountId: v[0], rows: v[1] }) as never,
  "",
);

export type CountChargesRow = { accountId: string; rows: number };
/**
 * Counts the charges of a UTC day of the next accounts, each up to so many.
 */
export const countCharges: Many<{ after: string; accounts: bigint | number; day: string; most: bigint | number }, CountChargesRow> = many(
  "billing/count-charges",
  `-- billing/count-charges
select a.account_id as account_id, c.rows as rows
from (
  select account_id from accounts where account_id > $1 order by account_id limit $2
) a
cross join lateral (
  select count(*)::integer as rows
  from (
    select
    from charges
    where account_id = a.account_id and amount >= 0
      and month = date_trunc('month', $3::date::timestamp)::date
      and admitted_at >= $3::date::timestamp at time zone 'utc'
      and admitted_at < ($3::date + 1)::timestamp at time zone 'utc'
    limit $4
  ) counted
) c
order by a.account_id`,
  (p) => [p.after, p.accounts, p.day, p.most],
  (v) => ({ accountId: v[0], rows: v[1] }) as never,
  "",
);

export type FindTagPartRow = { at: string; requestId: string };
/**
 * Finds the last of the next charges of an account on a UTC day. No row: there are fewer left.
 * `at`: after this one, as the request
 */
export const findTagPart: Optional<{ accountId: string; day: string; at: string; requestId: string; charges: bigint | number }, FindTagPartRow> = optional(
  "billing/find-tag-part",
  `-- billing/find-tag-part
select admitted_at::text as at, request_id as request_id
from charges
where account_id = $1 and amount >= 0
  and month = date_trunc('month', $2::date::timestamp)::date
  and (admitted_at, request_id) > ($3::text::timestamptz, $4)
  and admitted_at < ($2::date + 1)::timestamp at time zone 'utc'
order by admitted_at, request_id
offset $5 limit 1`,
  (p) => [p.accountId, p.day, p.at, p.requestId, p.charges],
  (v) => ({ at: v[0], requestId: v[1] }) as never,
  "",
);

/**
 * Adds up the tags of charges of an account on a UTC day: of those after one, up to another.
 */
export const addTagSums: Run<{ day: string; accountId: string; at: string; requestId: string; lastAt: string; lastRequestId: string }> = run(
  "billing/add-tag-sums",
  `-- billing/add-tag-sums
insert into tag_sums (account_id, day, tag, value, key_id, model,
  input, output, thinking, cache_write_5m, cache_write_1h, cache_read, web_searches,
  amount, amount_input, amount_output, amount_cache, amount_thinking,
  requests, completed, failed, cut)
select c.account_id, $1::date, t.tag, t.value, c.key_id, c.model,
  sum(input)::bigint, sum(output)::bigint, sum(thinking)::bigint, sum(cache_write_5m)::bigint,
  sum(cache_write_1h)::bigint, sum(cache_read)::bigint, sum(web_searches)::bigint,
  sum(amount)::bigint, sum(amount_input)::bigint, sum(amount_output)::bigint,
  sum(amount_cache)::bigint, sum(amount_thinking)::bigint,
  sum(requests)::bigint, sum(completed)::bigint, sum(failed)::bigint, sum(cut)::bigint
from charge_sums c
cross join lateral jsonb_each_text(c.tags) as t (tag, value)
where c.account_id = $2 and c.tags is not null
  and c.month = date_trunc('month', $1::date::timestamp)::date
  and (c.admitted_at, c.request_id) > ($3::text::timestamptz, $4)
  and (c.admitted_at, c.request_id) <= ($5::text::timestamptz, $6)
group by c.account_id, t.tag, t.value, c.key_id, c.model
on conflict (account_id, day, tag, value, key_id, model) do update
set (
    input, output, thinking, cache_write_5m, cache_write_1h, cache_read, web_searches,
    amount, amount_input, amount_output, amount_cache, amount_thinking,
    requests, completed, failed, cut
  ) = row (
    tag_sums.input + excluded.input, tag_sums.output + excluded.output,
    tag_sums.thinking + excluded.thinking, tag_sums.cache_write_5m + excluded.cache_write_5m,
    tag_sums.cache_write_1h + excluded.cache_write_1h, tag_sums.cache_read + excluded.cache_read,
    tag_sums.web_searches + excluded.web_searches, tag_sums.amount + excluded.amount,
    tag_sums.amount_input + excluded.amount_input, tag_sums.amount_output + excluded.amount_output,
    tag_sums.amount_cache + excluded.amount_cache,
    tag_sums.amount_thinking + excluded.amount_thinking, tag_sums.requests + excluded.requests,
    tag_sums.completed + excluded.completed, tag_sums.failed + excluded.failed,
    tag_sums.cut + excluded.cut)`,
  (p) => [p.day, p.accountId, p.at, p.requestId, p.lastAt, p.lastRequestId],
);

export type FindValuesEndRow = { tag: string; value: string };
/**
 * Finds the last value of the next sums of tags of an account on a UTC day. No row: there are fewer
 * left.
 * `tag`: after this one, as the value
 */
export const findValuesEnd: Optional<{ accountId: string; day: string; tag: string; value: string; sums: bigint | number }, FindValuesEndRow> = optional(
  "billing/find-values-end",
  `-- billing/find-values-end
select tag as tag, value as value
from tag_sums
where account_id = $1 and day = $2::date and (tag, value) > ($3, $4)
order by tag, value
offset $5 limit 1`,
  (p) => [p.accountId, p.day, p.tag, p.value, p.sums],
  (v) => ({ tag: v[0], value: v[1] }) as never,
  "",
);

export type FindCostliestRow = { tag: string; value: string; amount: bigint };
/**
 * Finds the values that cost most, of those after one and up to another.
 */
export const findCostliest: Many<{ accountId: string; day: string; tag: string; value: string; lastTag: string; lastValue: string; kept: bigint | number }, FindCostliestRow> = many(
  "billing/find-costliest",
  `-- billing/find-costliest
select tag as tag, value as value, sum(amount)::bigint as amount
from tag_sums
where account_id = $1 and day = $2::date
  and (tag, value) > ($3, $4) and (tag, value) <= ($5, $6)
group by tag, value
order by sum(amount) desc, tag, value
limit $7`,
  (p) => [p.accountId, p.day, p.tag, p.value, p.lastTag, p.lastValue, p.kept],
  (v) => ({ tag: v[0], value: v[1], amount: v[2] }) as never,
  "",
);

/**
 * Adds the values that are not kept to the others of their tag, of those after one and up to
 * another.
 * `tags`: of the kept values, as these
 */
export const foldValues: Run<{ accountId: string; day: string; tag: string; value: string; lastTag: string; lastValue: string; tags: readonly string[]; values: readonly string[] }> = run(
  "billing/fold-values",
  `-- billing/fold-values
with folded as (
  delete from tag_sums s
  where account_id = $1 and day = $2::date
    and (tag, value) > ($3, $4) and (tag, value) <= ($5, $6)
    and value <> '(other)'
    and not exists (
      select
      from unnest($7::text[], $8::text[]) as k (tag, value)
      where k.tag = s.tag and k.value = s.value)
  returning tag, key_id, model,
    input, output, thinking, cache_write_5m, cache_write_1h, cache_read, web_searches,
    amount, amount_input, amount_output, amount_cache, amount_thinking,
    requests, completed, failed, cut
)
insert into tag_sums (account_id, day, tag, value, key_id, model,
  input, output, thinking, cache_write_5m, cache_write_1h, cache_read, web_searches,
  amount, amount_input, amount_output, amount_cache, amount_thinking,
  requests, completed, failed, cut)
select $1, $2::date, tag, '(other)', key_id, model,
  sum(input)::bigint, sum(output)::bigint, sum(thinking)::bigint, sum(cache_write_5m)::bigint,
  sum(cache_write_1h)::bigint, sum(cache_read)::bigint, sum(web_searches)::bigint,
  sum(amount)::bigint, sum(amount_input)::bigint, sum(amount_output)::bigint,
  sum(amount_cache)::bigint, sum(amount_thinking)::bigint,
  sum(requests)::bigint, sum(completed)::bigint, sum(failed)::bigint, sum(cut)::bigint
from folded
group by tag, key_id, model
on conflict (account_id, day, tag, value, key_id, model) do update
set (
    input, output, thinking, cache_write_5m, cache_write_1h, cache_read, web_searches,
    amount, amount_input, amount_output, amount_cache, amount_thinking,
    requests, completed, failed, cut
  ) = row (
    tag_sums.input + excluded.input, tag_sums.output + excluded.output,
    tag_sums.thinking + excluded.thinking, tag_sums.cache_write_5m + excluded.cache_write_5m,
    tag_sums.cache_write_1h + excluded.cache_write_1h, tag_sums.cache_read + excluded.cache_read,
    tag_sums.web_searches + excluded.web_searches, tag_sums.amount + excluded.amount,
    tag_sums.amount_input + excluded.amount_input, tag_sums.amount_output + excluded.amount_output,
    tag_sums.amount_cache + excluded.amount_cache,
    tag_sums.amount_thinking + excluded.amount_thinking, tag_sums.requests + excluded.requests,
    tag_sums.completed + excluded.completed, tag_sums.failed + excluded.failed,
    tag_sums.cut + excluded.cut)`,
  (p) => [p.accountId, p.day, p.tag, p.value, p.lastTag, p.lastValue, p.tags, p.values],
);

/**
 * Writes the sums of the tags of an account on a UTC day as they were added up, of the values after
 * one and up to another. None of them may be there.
 */
export const storeTagSums: Run<{ accountId: string; day: string; tag: string; value: string; lastTag: string; lastValue: string }> = run(
  "billing/store-tag-sums",
  `-- billing/store-tag-sums
insert into tags_daily (account_id, day, tag, value, key_id, model,
  input, output, thinking, cache_write_5m, cache_write_1h, cache_read, web_searches,
  amount, amount_input, amount_output, amount_cache, amount_thinking,
  requests, completed, failed, cut)
select account_id, day, tag, value, key_id, model,
  input, output, thinking, cache_write_5m, cache_write_1h, cache_read, web_searches,
  amount, amount_input, amount_output, amount_cache, amount_thinking,
  requests, completed, failed, cut
from tag_sums
where account_id = $1 and day = $2::date
  and (tag, value) > ($3, $4) and (tag, value) <= ($5, $6)`,
  (p) => [p.accountId, p.day, p.tag, p.value, p.lastTag, p.lastValue],
);

/**
 * Removes some of what was added up, of all accounts.
 */
export const removeTagSums: Run<{ sums: bigint | number }> = run(
  "billing/remove-tag-sums",
  `-- billing/remove-tag-sums
delete from tag_sums
where ctid = any (array (select ctid from tag_sums limit $1))`,
  (p) => [p.sums],
);

export type FindFirstHoursRow = { day: string | null };
/**
 * Returns the first UTC day from a day on that has hours; null if there is none.
 */
export const findFirstHours: One<{ day: string }, FindFirstHoursRow> = one(
  "billing/find-first-hours",
  `-- billing/find-first-hours
select (min(hour) at time zone 'utc')::date as day
from usage_hourly
where hour >= $1::date::timestamp at time zone 'utc' and key_id >= ''`,
  (p) => [p.day],
  (v) => ({ day: v[0] }) as never,
  "day",
);

export type FindSpentLimitsRow = { accountId: string; family: "v1" | "v2"; payer: string; name: string | null; window: "day" | "week" | "month" | "total"; since: string | null; base: bigint; limitMicro: bigint; spentMicro: bigint; passed: bigint | null; totalLimit: bigint | null; keyCreatedAt: Date | null; keyExpiresAt: Date | null; isRefused: boolean };
/**
 * Finds the limits of active keys, persons, management keys and pools of which a part is spent in
 * the UTC window of now, and whether a request was rejected for them within the last hours of this
 * day: what is left may be too little for any request. Of a rejection only the key is known, so it
 * counts for the limit with the least left of those that bind the key, unless one of these changed
 * since: processes may reject by the limits of before for some seconds. Of a limit of a key, also
 * from when to when it may be used.
 * `percents`: for each of these accounts, the part
 */
export const findSpentLimits: Many<{ accountIds: readonly string[]; percents: readonly number[] }, FindSpentLimitsRow> = many(
  "billing/find-spent-limits",
  `-- billing/find-spent-limits
with asked as (
  select account_id, percent
  from unnest($1::text[], $2::integer[]) as a (account_id, percent)
), payers as (
  select account_id, "family", payer, day, spent, held, day_base, week_base, month_base, total_base,
    day_limit, week_limit, month_limit, total_limit
  from budgets b
  where account_id = any($1) and b.is_limited
  union all
  select account_id, "family", '', day, spent, held, day_base, week_base, month_base, total_base,
    day_limit, week_limit, month_limit, total_limit
  from pools p
  where account_id = any($1) and p.is_limited
), limits as (
  select p.account_id, p."family", p.payer, p.total_limit, w.name, w.most, w.base,
    greatest(w.since, w.starts) as since,
    case when w.since < w.starts then 0 else p.spent - w.base end as spent,
    w.most - case when w.since < w.starts then 0 else p.spent - w.base end - p.held as free
  from payers p
  cross join (select (now() at time zone 'utc')::date as today) t
  cross join lateral (
    values ('day', p.day, t.today, p.day_limit, p.day_base),
      ('week', date_trunc('week', p.day)::date, date_trunc('week', t.today)::date, p.week_limit,
        p.week_base),
      ('month', date_trunc('month', p.day)::date, date_trunc('month', t.today)::date, p.month_limit,
        p.month_base),
      ('total', null, null, p.total_limit, p.total_base)
  ) as w (name, since, starts, most, base)
  where w.most is not null
), refused as (
  select distinct on (k.key_id, e.reason) l.account_id, l."family", l.payer, l.name
  from errors_hourly e
  join keys k on k.account_id = e.account_id and k.key_id = e.key_id
  join limits l on l.account_id = k.account_id and l."family" = k."family"
    and l.payer in (k.key_id, k.managed_by, '')
    and (l.payer = k.key_id and l.name = 'month') = (e.reason = 'monthly_cap_reached')
  where e.account_id = any($1) and e.reason in ('monthly_cap_reached', 'budget_reached')
    and e.hour >= date_trunc('hour', now(), 'UTC') - interval '1 hour'
    and e.hour >= date_trunc('day', now(), 'UTC')
    and not exists (
      select
      from limit_changes c
      where c.account_id = k.account_id and c."family" = k."family"
        and c.payer in (k.key_id, k.managed_by, '')
        and c.changed_at > e.last_at - interval '5 seconds'
    )
  order by k.key_id, e.reason, l.free, l.payer, l.name
)
select l.account_id as account_id, l."family" as "family", l.payer as payer,
  coalesce(k.name, m.name) as name, l.name as window, l.since as since,
  l.base as base, l.most as limit_micro, l.spent as spent_micro,
  c.passed as passed, l.total_limit as total_limit, k.created_at as key_created_at,
  k.expires_at as key_expires_at,
  exists (
    select 1
    from refused r
    where r.account_id = l.account_id and r."family" = l."family" and r.payer = l.payer
      and r.name = l.name
  ) as is_refused
from limits l
join asked a using (account_id)
left join keys k on k.key_id = l.payer
left join management_keys m
  on l.payer like 'mgmt:%' and m.management_key_id = substr(l.payer, 6)
left join limit_changes c
  on c.account_id = l.account_id and c."family" = l."family" and c.payer = l.payer
    and c."window" = l.name
where (k.status = 'active' or l.payer = '' or strpos(l.payer, ':') > 0) and l.most > 0
  and l.spent * 100::numeric >= l.most * a.percent::numeric
order by l.account_id, l."family", l.payer, l.since`,
  (p) => [p.accountIds, p.percents],
  (v) => ({ accountId: v[0], family: v[1], payer: v[2], name: v[3], window: v[4], since: v[5], base: v[6], limitMicro: v[7], spentMicro: v[8], passed: v[9], totalLimit: v[10], keyCreatedAt: v[11], keyExpiresAt: v[12], isRefused: v[13] }) as never,
  "name since passed totalLimit keyCreatedAt keyExpiresAt",
);

export type ReadArchivedMonthsRow = { month: string };
/**
 * Reads the months in which an account was charged and whose charges were removed after an export,
 * oldest first.
 * `accountId`: null: any
 * `keyId`: null: any
 */
export const readArchivedMonths: Many<{ accountId: string | null; keyId: string | null }, ReadArchivedMonthsRow> = many(
  "billing/read-archived-months",
  `-- billing/read-archived-months
select a.month
from closed_months c
join month_archives a on a.month = c.month
where a.dropped_at is not null and ($1::text is null or c.account_id = $1)
  and ($2::text is null or c.key_id = $2)
group by a.month
order by a.month`,
  (p) => [p.accountId, p.keyId],
  (v) => ({ month: v[0] }) as never,
  "",
);

export type ReadDailySpendRow = { accountId: string; family: "v1" | "v2"; amount: bigint; days: number };
/**
 * Sums what was charged to the pools of accounts on the last full UTC days, with the number of days
 * for which it stands: all of them, or those since the first use. As ReadSpending does for one
 * account. No row: the pool was not used.
 * `days`: how many full days
 */
export const readDailySpend: Many<{ days: number; accountIds: readonly string[] }, ReadDailySpendRow> = many(
  "billing/read-daily-spend",
  `-- billing/read-daily-spend
select s.account_id, s."family", s.amount as amount,
  case when exists (
    select 1
    from usage_hourly u
    join keys k on k.account_id = u.account_id and k.key_id = u.key_id
    where u.account_id = s.account_id and k."family" = s."family"
      and u.hour < date_trunc('day', now(), 'UTC') - $1::integer * interval '1 day'
      and u.hour >= (select closed_to from usage_progress)::timestamp at time zone 'utc'
  ) or exists (
    select 1
    from usage_daily u
    join keys k on k.account_id = u.account_id and k.key_id = u.key_id
    where u.account_id = s.account_id and k."family" = s."family"
      and u.day < (now() at time zone 'utc')::date - $1::integer
  ) then $1::integer else (now() at time zone 'utc')::date - s.first_day end as days
from (
  select u.account_id, k."family", (min(u.hour) at time zone 'utc')::date as first_day,
    sum(u.amount)::bigint as amount
  from usage_hourly u
  join keys k on k.account_id = u.account_id and k.key_id = u.key_id
  where u.account_id = any($2::text[])
    and u.hour < date_trunc('day', now(), 'UTC')
    and u.hour >= date_trunc('day', now(), 'UTC') - $1::integer * interval '1 day'
  group by u.account_id, k."family"
) s`,
  (p) => [p.days, p.accountIds],
  (v) => ({ accountId: v[0], family: v[1], amount: v[2], days: v[3] }) as never,
  "",
);

export type SumAccountsRow = { accountId: string; amount: bigint };
/**
 * Sums what accounts were charged since a UTC day: of days that are closed from the days, of the
 * others from their hours.
 */
export const sumAccounts: Many<{ accountIds: readonly string[]; since: string }, SumAccountsRow> = many(
  "billing/sum-accounts",
  `-- billing/sum-accounts
select account_id as account_id, sum(amount)::bigint as amount
from (
  select u.account_id, u.amount
  from usage_daily u
  cross join usage_progress g
  where u.account_id = any($1::text[]) and u.day >= $2::date and u.day < g.closed_to
  union all
  select u.account_id, u.amount
  from usage_hourly u
  cross join usage_progress g
  where u.account_id = any($1::text[])
    and u.hour >= greatest($2::date, g.closed_to)::timestamp at time zone 'utc'
) used
group by account_id`,
  (p) => [p.accountIds, p.since],
  (v) => ({ accountId: v[0], amount: v[1] }) as never,
  "",
);

export type SumUsageRow = { input: bigint; output: bigint; thinking: bigint; cacheWrite5m: bigint; cacheWrite1h: bigint; cacheRead: bigint; webSearches: bigint; amount: bigint; amountInput: bigint; amountOutput: bigint; amountCache: bigint; amountThinking: bigint; requests: bigint; completed: bigint; failed: bigint; cut: bigint; cacheSaved: bigint; firstEvent1: bigint; firstEvent2: bigint; firstEvent3: bigint; firstEvent4: bigint; firstEvent5: bigint; firstEvent6: bigint; firstEvent7: bigint; firstEvent8: bigint; firstEvent9: bigint; firstEvent10: bigint; firstEvent11: bigint; firstEvent12: bigint; firstEvent13: bigint; firstEvent14: bigint; firstEvent15: bigint; firstEvent16: bigint; firstEvent17: bigint; firstEvent18: bigint; firstEvent19: bigint; firstEvent20: bigint; firstEvent21: bigint };
/**
 * Sums roll-ups as QueryUsage does, over all rows of all pages.
 * `keyIds`: null: all
 * `models`: null: all
 */
export const sumUsage: One<{ accountId: string; hoursFrom: Date | string; hoursTo: Date | string; daysFrom: string; daysTo: string; laterFrom: Date | string; laterTo: Date | string; keyIds: readonly string[] | null; models: readonly string[] | null }, SumUsageRow> = one(
  "billing/sum-usage",
  `-- billing/sum-usage
with used as (
  select key_id, model,
    input, output, thinking, cache_write_5m, cache_write_1h, cache_read, web_searches,
    amount, amount_input, amount_output, amount_cache, amount_thinking,
    requests, completed, failed, cut,
    cache_saved, first_event_1, first_event_2, first_event_3, first_event_4, first_event_5,
    first_event_6, first_event_7, first_event_8, first_event_9, first_event_10, first_event_11,
    first_event_12, first_event_13, first_event_14, first_event_15, first_event_16, first_event_17,
    first_event_18, first_event_19, first_event_20, first_event_21
  from usage_hourly
  where account_id = $1 and hour >= $2 and hour < $3
  union all
  select key_id, model,
    input, output, thinking, cache_write_5m, cache_write_1h, cache_read, web_searches,
    amount, amount_input, amount_output, amount_cache, amount_thinking,
    requests, completed, failed, cut,
    cache_saved, first_event_1, first_event_2, first_event_3, first_event_4, first_event_5,
    first_event_6, first_event_7, first_event_8, first_event_9, first_event_10, first_event_11,
    first_event_12, first_event_13, first_event_14, first_event_15, first_event_16, first_event_17,
    first_event_18, first_event_19, first_event_20, first_event_21
  from usage_daily
  where account_id = $1 and day >= $4::date and day < $5::date
  union all
  select key_id, model,
    input, output, thinking, cache_write_5m, cache_write_1h, cache_read, web_searches,
    amount, amount_input, amount_output, amount_cache, amount_thinking,
    requests, completed, failed, cut,
    cache_saved, first_event_1, first_event_2, first_event_3, first_event_4, first_event_5,
    first_event_6, first_event_7, first_event_8, first_event_9, first_event_10, first_event_11,
    first_event_12, first_event_13, first_event_14, first_event_15, first_event_16, first_event_17,
    first_event_18, first_event_19, first_event_20, first_event_21
  from usage_hourly
  where account_id = $1 and hour >= $6 and hour < $7
)
select
  coalesce(sum(input), 0)::bigint as input, coalesce(sum(output), 0)::bigint as output,
  coalesce(sum(thinking), 0)::bigint as thinking,
  coalesce(sum(cache_write_5m), 0)::bigint as cache_write_5m,
  coalesce(sum(cache_write_1h), 0)::bigint as cache_write_1h,
  coalesce(sum(cache_read), 0)::bigint as cache_read,
  coalesce(sum(web_searches), 0)::bigint as web_searches,
  coalesce(sum(amount), 0)::bigint as amount,
  coalesce(sum(amount_input), 0)::bigint as amount_input,
  coalesce(sum(amount_output), 0)::bigint as amount_output,
  coalesce(sum(amount_cache), 0)::bigint as amount_cache,
  coalesce(sum(amount_thinking), 0)::bigint as amount_thinking,
  coalesce(sum(requests), 0)::bigint as requests,
  coalesce(sum(completed), 0)::bigint as completed,
  coalesce(sum(failed), 0)::bigint as failed, coalesce(sum(cut), 0)::bigint as cut,
  coalesce(sum(cache_saved), 0)::bigint as cache_saved,
  coalesce(sum(first_event_1), 0)::bigint as first_event_1,
  coalesce(sum(first_event_2), 0)::bigint as first_event_2,
  coalesce(sum(first_event_3), 0)::bigint as first_event_3,
  coalesce(sum(first_event_4), 0)::bigint as first_event_4,
  coalesce(sum(first_event_5), 0)::bigint as first_event_5,
  coalesce(sum(first_event_6), 0)::bigint as first_event_6,
  coalesce(sum(first_event_7), 0)::bigint as first_event_7,
  coalesce(sum(first_event_8), 0)::bigint as first_event_8,
  coalesce(sum(first_event_9), 0)::bigint as first_event_9,
  coalesce(sum(first_event_10), 0)::bigint as first_event_10,
  coalesce(sum(first_event_11), 0)::bigint as first_event_11,
  coalesce(sum(first_event_12), 0)::bigint as first_event_12,
  coalesce(sum(first_event_13), 0)::bigint as first_event_13,
  coalesce(sum(first_event_14), 0)::bigint as first_event_14,
  coalesce(sum(first_event_15), 0)::bigint as first_event_15,
  coalesce(sum(first_event_16), 0)::bigint as first_event_16,
  coalesce(sum(first_event_17), 0)::bigint as first_event_17,
  coalesce(sum(first_event_18), 0)::bigint as first_event_18,
  coalesce(sum(first_event_19), 0)::bigint as first_event_19,
  coalesce(sum(first_event_20), 0)::bigint as first_event_20,
  coalesce(sum(first_event_21), 0)::bigint as first_event_21
from used
where ($8::text[] is null or key_id = any($8))
  and ($9::text[] is null or model = any($9))`,
  (p) => [p.accountId, p.hoursFrom, p.hoursTo, p.daysFrom, p.daysTo, p.laterFrom, p.laterTo, p.keyIds, p.models],
  (v) => ({ input: v[0], output: v[1], thinking: v[2], cacheWrite5m: v[3], cacheWrite1h: v[4], cacheRead: v[5], webSearches: v[6], amount: v[7], amountInput: v[8], amountOutput: v[9], amountCache: v[10], amountThinking: v[11], requests: v[12], completed: v[13], failed: v[14], cut: v[15], cacheSaved: v[16], firstEvent1: v[17], firstEvent2: v[18], firstEvent3: v[19], firstEvent4: v[20], firstEvent5: v[21], firstEvent6: v[22], firstEvent7: v[23], firstEvent8: v[24], firstEvent9: v[25], firstEvent10: v[26], firstEvent11: v[27], firstEvent12: v[28], firstEvent13: v[29], firstEvent14: v[30], firstEvent15: v[31], firstEvent16: v[32], firstEvent17: v[33], firstEvent18: v[34], firstEvent19: v[35], firstEvent20: v[36], firstEvent21: v[37] }) as never,
  "",
);

export type ListUsageRow = { day: string; keyId: string; model: string; family: "v1" | "v2" | ""; member: string; input: bigint; output: bigint; thinking: bigint; cacheWrite5m: bigint; cacheWrite1h: bigint; cacheRead: bigint; webSearches: bigint; amount: bigint; amountInput: bigint; amountOutput: bigint; amountCache: bigint; amountThinking: bigint; requests: bigint; completed: bigint; failed: bigint; cut: bigint; cacheSaved: bigint; firstEvent1: bigint; firstEvent2: bigint; firstEvent3: bigint; firstEvent4: bigint; firstEvent5: bigint; firstEvent6: bigint; firstEvent7: bigint; firstEvent8: bigint; firstEvent9: bigint; firstEvent10: bigint; firstEvent11: bigint; firstEvent12: bigint; firstEvent13: bigint; firstEvent14: bigint; firstEvent15: bigint; firstEvent16: bigint; firstEvent17: bigint; firstEvent18: bigint; firstEvent19: bigint; firstEvent20: bigint; firstEvent21: bigint };
/**
 * Lists roll-ups by UTC day, key and model, one page of rows, with the family and the manager
 * of the key if asked.
 * Answers as QueryUsage grouped so, without reading more rows than the page has: each row is one of
 * a table already.
 * `keyIds`: null: all
 * `models`: null: all
 * `afterDay`: of the last row of the page before; null: from the first
 * `afterKeyId`: of the same row
 * `afterModel`: of the same row
 */
export const listUsage: Many<{ byFamily: boolean; byMember: boolean; accountId: string; hoursFrom: Date | string; hoursTo: Date | string; daysFrom: string; daysTo: string; laterFrom: Date | string; laterTo: Date | string; keyIds: readonly string[] | null; models: readonly string[] | null; afterDay: string | null; afterKeyId: string | null; afterModel: string | null; rows: bigint | number }, ListUsageRow> = many(
  "billing/list-usage",
  `-- billing/list-usage
select page.day as day, page.key_id as key_id, page.model as model,
  case when $1 then coalesce(k."family", '') else '' end as "family",
  case when $2 then coalesce(k.managed_by, '') else '' end as member,
  input as input, output as output, thinking as thinking,
  cache_write_5m as cache_write_5m, cache_write_1h as cache_write_1h,
  cache_read as cache_read, web_searches as web_searches,
  amount as amount, amount_input as amount_input, amount_output as amount_output,
  amount_cache as amount_cache, amount_thinking as amount_thinking,
  requests as requests, completed as completed, failed as failed, cut as cut,
  cache_saved as cache_saved, first_event_1 as first_event_1,
  first_event_2 as first_event_2, first_event_3 as first_event_3,
  first_event_4 as first_event_4, first_event_5 as first_event_5,
  first_event_6 as first_event_6, first_event_7 as first_event_7,
  first_event_8 as first_event_8, first_event_9 as first_event_9,
  first_event_10 as first_event_10, first_event_11 as first_event_11,
  first_event_12 as first_event_12, first_event_13 as first_event_13,
  first_event_14 as first_event_14, first_event_15 as first_event_15,
  first_event_16 as first_event_16, first_event_17 as first_event_17,
  first_event_18 as first_event_18, first_event_19 as first_event_19,
  first_event_20 as first_event_20, first_event_21 as first_event_21
from (
  select *
  from (
    (
      select (hour at time zone 'utc')::date as day, key_id, model,
        sum(input)::bigint as input, sum(output)::bigint as output,
        sum(thinking)::bigint as thinking, sum(cache_write_5m)::bigint as cache_write_5m,
        sum(cache_write_1h)::bigint as cache_write_1h, sum(cache_read)::bigint as cache_read,
        sum(web_searches)::bigint as web_searches,
        sum(amount)::bigint as amount, sum(amount_input)::bigint as amount_input,
        sum(amount_output)::bigint as amount_output, sum(amount_cache)::bigint as amount_cache,
        sum(amount_thinking)::bigint as amount_thinking,
        sum(requests)::bigint as requests, sum(completed)::bigint as completed,
        sum(failed)::bigint as failed, sum(cut)::bigint as cut,
        sum(cache_saved)::bigint as cache_saved, sum(first_event_1)::bigint as first_event_1,
        sum(first_event_2)::bigint as first_event_2, sum(first_event_3)::bigint as first_event_3,
        sum(first_event_4)::bigint as first_event_4, sum(first_event_5)::bigint as first_event_5,
        sum(first_event_6)::bigint as first_event_6, sum(first_event_7)::bigint as first_event_7,
        sum(first_event_8)::bigint as first_event_8, sum(first_event_9)::bigint as first_event_9,
        sum(first_event_10)::bigint as first_event_10,
        sum(first_event_11)::bigint as first_event_11,
        sum(first_event_12)::bigint as first_event_12,
        sum(first_event_13)::bigint as first_event_13,
        sum(first_event_14)::bigint as first_event_14,
        sum(first_event_15)::bigint as first_event_15,
        sum(first_event_16)::bigint as first_event_16,
        sum(first_event_17)::bigint as first_event_17,
        sum(first_event_18)::bigint as first_event_18,
        sum(first_event_19)::bigint as first_event_19,
        sum(first_event_20)::bigint as first_event_20, sum(first_event_21)::bigint as first_event_21
      from usage_hourly
      where account_id = $3 and hour >= $4 and hour < $5
      group by 1, 2, 3
      order by 1, 2, 3
    )
    union all
    (
      select day, key_id, model,
        input, output, thinking, cache_write_5m, cache_write_1h, cache_read, web_searches,
        amount, amount_input, amount_output, amount_cache, amount_thinking,
        requests, completed, failed, cut,
        cache_saved, first_event_1, first_event_2, first_event_3, first_event_4, first_event_5,
        first_event_6, first_event_7, first_event_8, first_event_9, first_event_10, first_event_11,
        first_event_12, first_event_13, first_event_14, first_event_15, first_event_16,
        first_event_17, first_event_18, first_event_19, first_event_20, first_event_21
      from usage_daily
      where account_id = $3 and day >= $6::date and day < $7::date
      order by day, key_id, model
    )
    union all
    (
      select (hour at time zone 'utc')::date, key_id, model,
        sum(input)::bigint, sum(output)::bigint, sum(thinking)::bigint, sum(cache_write_5m)::bigint,
        sum(cache_write_1h)::bigint, sum(cache_read)::bigint, sum(web_searches)::bigint,
        sum(amount)::bigint, sum(amount_input)::bigint, sum(amount_output)::bigint,
        sum(amount_cache)::bigint, sum(amount_thinking)::bigint,
        sum(requests)::bigint, sum(completed)::bigint, sum(failed)::bigint, sum(cut)::bigint,
        sum(cache_saved)::bigint, sum(first_event_1)::bigint, sum(first_event_2)::bigint,
        sum(first_event_3)::bigint, sum(first_event_4)::bigint, sum(first_event_5)::bigint,
        sum(first_event_6)::bigint, sum(first_event_7)::bigint, sum(first_event_8)::bigint,
        sum(first_event_9)::bigint, sum(first_event_10)::bigint, sum(first_event_11)::bigint,
        sum(first_event_12)::bigint, sum(first_event_13)::bigint, sum(first_event_14)::bigint,
        sum(first_event_15)::bigint, sum(first_event_16)::bigint, sum(first_event_17)::bigint,
        sum(first_event_18)::bigint, sum(first_event_19)::bigint, sum(first_event_20)::bigint,
        sum(first_event_21)::bigint
      from usage_hourly
      where account_id = $3 and hour >= $8 and hour < $9
      group by 1, 2, 3
      order by 1, 2, 3
    )
  ) rows
  where ($10::text[] is null or key_id = any($10))
    and ($11::text[] is null or model = any($11))
    and ($12::date is null
      or (day, key_id, model) > ($12, $13, $14))
  order by day, key_id, model
  limit $15
) page
left join keys k
  on ($1 or $2) and k.account_id = $3 and k.key_id = page.key_id
order by page.day, page.key_id, page.model`,
  (p) => [p.byFamily, p.byMember, p.accountId, p.hoursFrom, p.hoursTo, p.daysFrom, p.daysTo, p.laterFrom, p.laterTo, p.keyIds, p.models, p.afterDay, p.afterKeyId, p.afterModel, p.rows],
  (v) => ({ day: v[0], keyId: v[1], model: v[2], family: v[3], member: v[4], input: v[5], output: v[6], thinking: v[7], cacheWrite5m: v[8], cacheWrite1h: v[9], cacheRead: v[10], webSearches: v[11], amount: v[12], amountInput: v[13], amountOutput: v[14], amountCache: v[15], amountThinking: v[16], requests: v[17], completed: v[18], failed: v[19], cut: v[20], cacheSaved: v[21], firstEvent1: v[22], firstEvent2: v[23], firstEvent3: v[24], firstEvent4: v[25], firstEvent5: v[26], firstEvent6: v[27], firstEvent7: v[28], firstEvent8: v[29], firstEvent9: v[30], firstEvent10: v[31], firstEvent11: v[32], firstEvent12: v[33], firstEvent13: v[34], firstEvent14: v[35], firstEvent15: v[36], firstEvent16: v[37], firstEvent17: v[38], firstEvent18: v[39], firstEvent19: v[40], firstEvent20: v[41], firstEvent21: v[42] }) as never,
  "",
);

export type QueryUsageRow = { period: Date; keyId: string; model: string; family: "v1" | "v2" | ""; member: string; input: bigint; output: bigint; thinking: bigint; cacheWrite5m: bigint; cacheWrite1h: bigint; cacheRead: bigint; webSearches: bigint; amount: bigint; amountInput: bigint; amountOutput: bigint; amountCache: bigint; amountThinking: bigint; requests: bigint; completed: bigint; failed: bigint; cut: bigint; cacheSaved: bigint; firstEvent1: bigint; firstEvent2: bigint; firstEvent3: bigint; firstEvent4: bigint; firstEvent5: bigint; firstEvent6: bigint; firstEvent7: bigint; firstEvent8: bigint; firstEvent9: bigint; firstEvent10: bigint; firstEvent11: bigint; firstEvent12: bigint; firstEvent13: bigint; firstEvent14: bigint; firstEvent15: bigint; firstEvent16: bigint; firstEvent17: bigint; firstEvent18: bigint; firstEvent19: bigint; firstEvent20: bigint; firstEvent21: bigint };
/**
 * Sums roll-ups by time, key, model, family and manager of the key: one page of rows. Whole days
 * that are closed are read from the days, the rest from the hours: those from `hours_from` to
 * `hours_to` before the days, and those from `later_from` to `later_to` after them. Each end is
 * exclusive.
 * `bucket`: hour, day, month or none
 * `keyIds`: null: all
 * `models`: null: all
 * `afterPeriod`: of the last row of the page before; null: from the first
 * `afterKeyId`: of the same row
 * `afterModel`: of the same row
 * `afterFamily`: of the same row
 * `afterMember`: of the same row
 */
export const queryUsage: Many<{ accountId: string; hoursFrom: Date | string; hoursTo: Date | string; daysFrom: string; daysTo: string; laterFrom: Date | string; laterTo: Date | string; byFamily: boolean; byMember: boolean; bucket: string; byKey: boolean; byModel: boolean; keyIds: readonly string[] | null; models: readonly string[] | null; afterPeriod: Date | string | null; afterKeyId: string | null; afterModel: string | null; afterFamily: string | null; afterMember: string | null; rows: bigint | number }, QueryUsageRow> = many(
  "billing/query-usage",
  `-- billing/query-usage
with used as (
  select key_id, model, hour at time zone 'utc' as at,
    input, output, thinking, cache_write_5m, cache_write_1h, cache_read, web_searches,
    amount, amount_input, amount_output, amount_cache, amount_thinking,
    requests, completed, failed, cut,
    cache_saved, first_event_1, first_event_2, first_event_3, first_event_4, first_event_5,
    first_event_6, first_event_7, first_event_8, first_event_9, first_event_10, first_event_11,
    first_event_12, first_event_13, first_event_14, first_event_15, first_event_16, first_event_17,
    first_event_18, first_event_19, first_event_20, first_event_21
  from usage_hourly
  where account_id = $1 and hour >= $2 and hour < $3
  union all
  select key_id, model, day::timestamp,
    input, output, thinking, cache_write_5m, cache_write_1h, cache_read, web_searches,
    amount, amount_input, amount_output, amount_cache, amount_thinking,
    requests, completed, failed, cut,
    cache_saved, first_event_1, first_event_2, first_event_3, first_event_4, first_event_5,
    first_event_6, first_event_7, first_event_8, first_event_9, first_event_10, first_event_11,
    first_event_12, first_event_13, first_event_14, first_event_15, first_event_16, first_event_17,
    first_event_18, first_event_19, first_event_20, first_event_21
  from usage_daily
  where account_id = $1 and day >= $4::date and day < $5::date
  union all
  select key_id, model, hour at time zone 'utc',
    input, output, thinking, cache_write_5m, cache_write_1h, cache_read, web_searches,
    amount, amount_input, amount_output, amount_cache, amount_thinking,
    requests, completed, failed, cut,
    cache_saved, first_event_1, first_event_2, first_event_3, first_event_4, first_event_5,
    first_event_6, first_event_7, first_event_8, first_event_9, first_event_10, first_event_11,
    first_event_12, first_event_13, first_event_14, first_event_15, first_event_16, first_event_17,
    first_event_18, first_event_19, first_event_20, first_event_21
  from usage_hourly
  where account_id = $1 and hour >= $6 and hour < $7
)
select named.period at time zone 'utc' as period, named.key_id as key_id,
  named.model as model, named."family" as "family", named.member as member,
  sum(input)::bigint as input, sum(output)::bigint as output,
  sum(thinking)::bigint as thinking, sum(cache_write_5m)::bigint as cache_write_5m,
  sum(cache_write_1h)::bigint as cache_write_1h, sum(cache_read)::bigint as cache_read,
  sum(web_searches)::bigint as web_searches,
  sum(amount)::bigint as amount, sum(amount_input)::bigint as amount_input,
  sum(amount_output)::bigint as amount_output, sum(amount_cache)::bigint as amount_cache,
  sum(amount_thinking)::bigint as amount_thinking,
  sum(requests)::bigint as requests, sum(completed)::bigint as completed,
  sum(failed)::bigint as failed, sum(cut)::bigint as cut,
  sum(cache_saved)::bigint as cache_saved, sum(first_event_1)::bigint as first_event_1,
  sum(first_event_2)::bigint as first_event_2, sum(first_event_3)::bigint as first_event_3,
  sum(first_event_4)::bigint as first_event_4, sum(first_event_5)::bigint as first_event_5,
  sum(first_event_6)::bigint as first_event_6, sum(first_event_7)::bigint as first_event_7,
  sum(first_event_8)::bigint as first_event_8, sum(first_event_9)::bigint as first_event_9,
  sum(first_event_10)::bigint as first_event_10,
  sum(first_event_11)::bigint as first_event_11,
  sum(first_event_12)::bigint as first_event_12,
  sum(first_event_13)::bigint as first_event_13,
  sum(first_event_14)::bigint as first_event_14,
  sum(first_event_15)::bigint as first_event_15,
  sum(first_event_16)::bigint as first_event_16,
  sum(first_event_17)::bigint as first_event_17,
  sum(first_event_18)::bigint as first_event_18,
  sum(first_event_19)::bigint as first_event_19,
  sum(first_event_20)::bigint as first_event_20, sum(first_event_21)::bigint as first_event_21
from used
left join keys k
  on ($8 or $9) and k.account_id = $1 and k.key_id = used.key_id
cross join lateral (
  select
    case $10::text
      when 'none' then $2::timestamptz at time zone 'utc'
      else date_trunc($10, used.at)
    end as period,
    case when $11 then used.key_id else '' end as key_id,
    case when $12 then used.model else '' end as model,
    case when $8 then coalesce(k."family", '') else '' end as "family",
    case when $9 then coalesce(k.managed_by, '') else '' end as member
) named
where ($13::text[] is null or used.key_id = any($13))
  and ($14::text[] is null or used.model = any($14))
  and ($15::timestamptz is null
    or (named.period, named.key_id, named.model, named."family", named.member)
      > ($15 at time zone 'utc', $16, $17, $18,
        $19))
group by named.period, named.key_id, named.model, named."family", named.member
order by named.period, named.key_id, named.model, named."family", named.member
limit $20`,
  (p) => [p.accountId, p.hoursFrom, p.hoursTo, p.daysFrom, p.daysTo, p.laterFrom, p.laterTo, p.byFamily, p.byMember, p.bucket, p.byKey, p.byModel, p.keyIds, p.models, p.afterPeriod, p.afterKeyId, p.afterModel, p.afterFamily, p.afterMember, p.rows],
  (v) => ({ period: v[0], keyId: v[1], model: v[2], family: v[3], member: v[4], input: v[5], output: v[6], thinking: v[7], cacheWrite5m: v[8], cacheWrite1h: v[9], cacheRead: v[10], webSearches: v[11], amount: v[12], amountInput: v[13], amountOutput: v[14], amountCache: v[15], amountThinking: v[16], requests: v[17], completed: v[18], failed: v[19], cut: v[20], cacheSaved: v[21], firstEvent1: v[22], firstEvent2: v[23], firstEvent3: v[24], firstEvent4: v[25], firstEvent5: v[26], firstEvent6: v[27], firstEvent7: v[28], firstEvent8: v[29], firstEvent9: v[30], firstEvent10: v[31], firstEvent11: v[32], firstEvent12: v[33], firstEvent13: v[34], firstEvent14: v[35], firstEvent15: v[36], firstEvent16: v[37], firstEvent17: v[38], firstEvent18: v[39], firstEvent19: v[40], firstEvent20: v[41], firstEvent21: v[42] }) as never,
  "",
);

export type QueryTagsRow = { period: Date; keyId: string; model: string; family: "v1" | "v2" | ""; member: string; value: string; input: bigint; output: bigint; thinking: bigint; cacheWrite5m: bigint; cacheWrite1h: bigint; cacheRead: bigint; webSearches: bigint; amount: bigint; amountInput: bigint; amountOutput: bigint; amountCache: bigint; amountThinking: bigint; requests: bigint; completed: bigint; failed: bigint; cut: bigint };
/**
 * Sums charges by the value of one tag, and by time, key, model and family: one page of rows. Whole
 * days whose tags are written are read from there, the rest from the charges. Without a value, the
 * requests without the tag are summed too, as all requests but the others. First events are not
 * kept by tag. The parameters are those of QueryUsage.
 * `value`: of the tag; null: all
 */
export const queryTags: Many<{ bucket: string; tag: string; accountId: string; hoursFrom: Date | string; hoursTo: Date | string; daysFrom: string; daysTo: string; laterFrom: Date | string; laterTo: Date | string; value: string | null; byFamily: boolean; byMember: boolean; byKey: boolean; byModel: boolean; keyIds: readonly string[] | null; models: readonly string[] | null; afterPeriod: Date | string | null; afterKeyId: string | null; afterModel: string | null; afterFamily: string | null; afterMember: string | null; afterValue: string | null; rows: bigint | number }, QueryTagsRow> = many(
  "billing/query-tags",
  `-- billing/query-tags
with tagged as (
  -- In pieces as large as the rows of the answer: there may be a million charges.
  select key_id, model,
    date_trunc(replace($1::text, 'none', 'month'), admitted_at at time zone 'utc') as at,
    tags ->> $2::text as value,
    sum(input)::bigint as input, sum(output)::bigint as output, sum(thinking)::bigint as thinking,
    sum(cache_write_5m)::bigint as cache_write_5m, sum(cache_write_1h)::bigint as cache_write_1h,
    sum(cache_read)::bigint as cache_read, sum(web_searches)::bigint as web_searches,
    sum(amount)::bigint as amount, sum(amount_input)::bigint as amount_input,
    sum(amount_output)::bigint as amount_output, sum(amount_cache)::bigint as amount_cache,
    sum(amount_thinking)::bigint as amount_thinking,
    sum(requests)::bigint as requests, sum(completed)::bigint as completed,
    sum(failed)::bigint as failed, sum(cut)::bigint as cut
  from charge_sums
  where account_id = $3 and tags ? $2
    and admitted_at >= $4 and admitted_at < $5
    -- The month of a charge is that of its admission. This leaves out the other partitions.
    and month between date_trunc('month', $4::timestamptz at time zone 'utc')::date
      and date_trunc('month', $5::timestamptz at time zone 'utc')::date
  group by 1, 2, 3, 4
  union all
  select key_id, model, day::timestamp, value,
    input, output, thinking, cache_write_5m, cache_write_1h, cache_read, web_searches,
    amount, amount_input, amount_output, amount_cache, amount_thinking,
    requests, completed, failed, cut
  from tags_daily
  where account_id = $3 and tag = $2 and day >= $6::date and day < $7::date
  union all
  select key_id, model,
    date_trunc(replace($1::text, 'none', 'month'), admitted_at at time zone 'utc'),
    tags ->> $2::text,
    sum(input)::bigint, sum(output)::bigint, sum(thinking)::bigint, sum(cache_write_5m)::bigint,
    sum(cache_write_1h)::bigint, sum(cache_read)::bigint, sum(web_searches)::bigint,
    sum(amount)::bigint, sum(amount_input)::bigint, sum(amount_output)::bigint,
    sum(amount_cache)::bigint, sum(amount_thinking)::bigint,
    sum(requests)::bigint, sum(completed)::bigint, sum(failed)::bigint, sum(cut)::bigint
  from charge_sums
  where account_id = $3 and tags ? $2
    and admitted_at >= $8 and admitted_at < $9
    and month between date_trunc('month', $8::timestamptz at time zone 'utc')::date
      and date_trunc('month', $9::timestamptz at time zone 'utc')::date
  group by 1, 2, 3, 4
), used as (
  select *
  from tagged
  where $10::text is null or value = $10
  union all
  select key_id, model, at, '',
    -input, -output, -thinking, -cache_write_5m, -cache_write_1h, -cache_read, -web_searches,
    -amount, -amount_input, -amount_output, -amount_cache, -amount_thinking,
    -requests, -completed, -failed, -cut
  from tagged
  where $10 is null
  union all
  select key_id, model, hour at time zone 'utc', '',
    input, output, thinking, cache_write_5m, cache_write_1h, cache_read, web_searches,
    amount, amount_input, amount_output, amount_cache, amount_thinking,
    requests, completed, failed, cut
  from usage_hourly
  where $10 is null and account_id = $3 and hour >= $4 and hour < $5
  union all
  select key_id, model, day::timestamp, '',
    input, output, thinking, cache_write_5m, cache_write_1h, cache_read, web_searches,
    amount, amount_input, amount_output, amount_cache, amount_thinking,
    requests, completed, failed, cut
  from usage_daily
  where $10 is null and account_id = $3
    and day >= $6::date and day < $7::date
  union all
  select key_id, model, hour at time zone 'utc', '',
    input, output, thinking, cache_write_5m, cache_write_1h, cache_read, web_searches,
    amount, amount_input, amount_output, amount_cache, amount_thinking,
    requests, completed, failed, cut
  from usage_hourly
  where $10 is null and account_id = $3 and hour >= $8 and hour < $9
)
select named.period at time zone 'utc' as period, named.key_id as key_id,
  named.model as model, named."family" as "family", named.member as member,
  used.value as value,
  sum(input)::bigint as input, sum(output)::bigint as output,
  sum(thinking)::bigint as thinking, sum(cache_write_5m)::bigint as cache_write_5m,
  sum(cache_write_1h)::bigint as cache_write_1h, sum(cache_read)::bigint as cache_read,
  sum(web_searches)::bigint as web_searches,
  sum(amount)::bigint as amount, sum(amount_input)::bigint as amount_input,
  sum(amount_output)::bigint as amount_output, sum(amount_cache)::bigint as amount_cache,
  sum(amount_thinking)::bigint as amount_thinking,
  sum(requests)::bigint as requests, sum(completed)::bigint as completed,
  sum(failed)::bigint as failed, sum(cut)::bigint as cut
from used
left join keys k
  on ($11 or $12) and k.account_id = $3 and k.key_id = used.key_id
cross join lateral (
  select
    case $1::text
      when 'none' then $4::timestamptz at time zone 'utc'
      else date_trunc($1, used.at)
    end as period,
    case when $13 then used.key_id else '' end as key_id,
    case when $14 then used.model else '' end as model,
    case when $11 then coalesce(k."family", '') else '' end as "family",
    case when $12 then coalesce(k.managed_by, '') else '' end as member
) named
where ($15::text[] is null or used.key_id = any($15))
  and ($16::text[] is null or used.model = any($16))
  and ($17::timestamptz is null
    or (named.period, named.key_id, named.model, named."family", named.member, used.value)
      > ($17 at time zone 'utc', $18, $19, $20,
        $21, $22))
group by named.period, named.key_id, named.model, named."family", named.member, used.value
having sum(requests) > 0
order by named.period, named.key_id, named.model, named."family", named.member, used.value
limit $23`,
  (p) => [p.bucket, p.tag, p.accountId, p.hoursFrom, p.hoursTo, p.daysFrom, p.daysTo, p.laterFrom, p.laterTo, p.value, p.byFamily, p.byMember, p.byKey, p.byModel, p.keyIds, p.models, p.afterPeriod, p.afterKeyId, p.afterModel, p.afterFamily, p.afterMember, p.afterValue, p.rows],
  (v) => ({ period: v[0], keyId: v[1], model: v[2], family: v[3], member: v[4], value: v[5], input: v[6], output: v[7], thinking: v[8], cacheWrite5m: v[9], cacheWrite1h: v[10], cacheRead: v[11], webSearches: v[12], amount: v[13], amountInput: v[14], amountOutput: v[15], amountCache: v[16], amountThinking: v[17], requests: v[18], completed: v[19], failed: v[20], cut: v[21] }) as never,
  "",
);

export type LockUsageProgressRow = { closedTo: string; hoursFrom: string; removedTo: string; tagsTo: string; today: string };
/**
 * Locks the progress of the days, so that one process closes them, and returns it with the UTC day.
 */
export const lockUsageProgress: One<undefined, LockUsageProgressRow> = one(
  "billing/lock-usage-progress",
  `-- billing/lock-usage-progress
select closed_to, hours_from, removed_to, tags_to, (now() at time zone 'utc')::date as today
from usage_progress
for update`,
  () => [],
  (v) => ({ closedTo: v[0], hoursFrom: v[1], removedTo: v[2], tagsTo: v[3], today: v[4] }) as never,
  "",
);

export type CompareDayRow = { differences: number };
/**
 * Counts the keys and models of some accounts whose sums of a UTC day differ from those of their
 * hours.
 */
export const compareDay: One<{ accountIds: readonly string[]; day: string }, CompareDayRow> = one(
  "billing/compare-day",
  `-- billing/compare-day
select count(*)::integer as differences
from (
  select account_id, key_id, model,
    input, output, thinking, cache_write_5m, cache_write_1h, cache_read, web_searches,
    amount, amount_input, amount_output, amount_cache, amount_thinking,
    requests, completed, failed, cut,
    cache_saved, first_event_1, first_event_2, first_event_3, first_event_4, first_event_5,
    first_event_6, first_event_7, first_event_8, first_event_9, first_event_10, first_event_11,
    first_event_12, first_event_13, first_event_14, first_event_15, first_event_16, first_event_17,
    first_event_18, first_event_19, first_event_20, first_event_21
  from usage_daily
  where account_id = any($1::text[]) and day = $2::date
) d
full join (
  select h.account_id, key_id, model,
    sum(input)::bigint, sum(output)::bigint, sum(thinking)::bigint, sum(cache_write_5m)::bigint,
    sum(cache_write_1h)::bigint, sum(cache_read)::bigint, sum(web_searches)::bigint,
    sum(amount)::bigint, sum(amount_input)::bigint, sum(amount_output)::bigint,
    sum(amount_cache)::bigint, sum(amount_thinking)::bigint,
    sum(requests)::bigint, sum(completed)::bigint, sum(failed)::bigint, sum(cut)::bigint,
    sum(cache_saved)::bigint, sum(first_event_1)::bigint, sum(first_event_2)::bigint,
    sum(first_event_3)::bigint, sum(first_event_4)::bigint, sum(first_event_5)::bigint,
    sum(first_event_6)::bigint, sum(first_event_7)::bigint, sum(first_event_8)::bigint,
    sum(first_event_9)::bigint, sum(first_event_10)::bigint, sum(first_event_11)::bigint,
    sum(first_event_12)::bigint, sum(first_event_13)::bigint, sum(first_event_14)::bigint,
    sum(first_event_15)::bigint, sum(first_event_16)::bigint, sum(first_event_17)::bigint,
    sum(first_event_18)::bigint, sum(first_event_19)::bigint, sum(first_event_20)::bigint,
    sum(first_event_21)::bigint
  from unnest($1::text[]) as a (account_id)
  cross join lateral (
    select *
    from usage_hourly
    where account_id = a.account_id and hour >= $2::date::timestamp at time zone 'utc'
      and hour < ($2::date + 1)::timestamp at time zone 'utc'
    offset 0
  ) h
  group by h.account_id, key_id, model
) h using (account_id, key_id, model)
where d is distinct from h`,
  (p) => [p.accountIds, p.day],
  (v) => ({ differences: v[0] }) as never,
  "",
);

/**
 * Records how far the days are. The caller has locked the row.
 */
export const moveUsageProgress: Run<{ closedTo: string; hoursFrom: string; removedTo: string }> = run(
  "billing/move-usage-progress",
  `-- billing/move-usage-progress
update usage_progress
set closed_to = $1::date, hours_from = $2::date, removed_to = $3`,
  (p) => [p.closedTo, p.hoursFrom, p.removedTo],
);

/**
 * Records that the sums of the tags of the days before one are written.
 */
export const moveTagsProgress: Run<{ tagsTo: string }> = run(
  "billing/move-tags-progress",
  `-- billing/move-tags-progress
update usage_progress set tags_to = $1::date`,
  (p) => [p.tagsTo],
);

/**
 * Removes the hours of a UTC day of some accounts.
 */
export const removeHours: Run<{ accountIds: readonly string[]; day: string }> = run(
  "billing/remove-hours",
  `-- billing/remove-hours
delete from usage_hourly h
using unnest($1::text[]) as a (account_id)
where h.account_id = a.account_id and h.hour >= $2::date::timestamp at time zone 'utc'
  and h.hour < ($2::date + 1)::timestamp at time zone 'utc'`,
  (p) => [p.accountIds, p.day],
);

/**
 * Removes the sums of tags of a UTC day of some accounts, which are written again.
 */
export const removeTags: Run<{ accountIds: readonly string[]; day: string }> = run(
  "billing/remove-tags",
  `-- billing/remove-tags
delete from tags_daily t
using unnest($1::text[]) as a (account_id)
where t.day = $2::date and t.account_id = a.account_id`,
  (p) => [p.accountIds, p.day],
);

export type CountOutcomesRow = { outcome: string; requests: bigint };
/**
 * Counts the requests of an account that did not complete, by outcome, the most frequent first.
 * Sums do not have them. Reads these charges alone, through `charges_not_completed`.
 * `from`: the first time of admission
 * `to`: exclusive
 * `keyIds`: null: all
 * `models`: null: all
 * `tags`: the tags that each charge has; null: any
 */
export const countOutcomes: Many<{ accountId: string; from: Date | string; to: Date | string; keyIds: readonly string[] | null; models: readonly string[] | null; tags: string | null }, CountOutcomesRow> = many(
  "billing/count-outcomes",
  `-- billing/count-outcomes
select outcome, count(*)::bigint as requests
from charges
where account_id = $1 and amount >= 0 and outcome <> 'completed'
  and admitted_at >= $2::timestamptz and admitted_at < $3::timestamptz
  -- The month of a charge is that of its admission. This leaves out the other partitions.
  and month between date_trunc('month', $2 at time zone 'utc')::date
    and date_trunc('month', $3 at time zone 'utc')::date
  and ($4::text[] is null or key_id = any($4))
  and ($5::text[] is null or model = any($5))
  and ($6::jsonb is null or coalesce(tags @> $6, false))
group by outcome
order by 2 desc, 1`,
  (p) => [p.accountId, p.from, p.to, p.keyIds, p.models, p.tags],
  (v) => ({ outcome: v[0], requests: v[1] }) as never,
  "",
);

// verification.sql

/**
 * Stores what a check of the ledger found.
 * `violations`: the first of them
 */
export const insertVerification: Run<{ verificationId: string; startedAt: Date | string; endedAt: Date | string; startedBy: string; violationCount: number; violations: string }> = run(
  "billing/insert-verification",
  `-- billing/insert-verification
insert into verifications
  (verification_id, started_at, ended_at, started_by, violation_count, violations)
values ($1, $2, $3, $4, $5, $6)`,
  (p) => [p.verificationId, p.startedAt, p.endedAt, p.startedBy, p.violationCount, p.violations],
);

export type ReadVerificationRow = { verificationId: string; startedAt: Date; endedAt: Date; startedBy: string; violationCount: number; violations: Json; cleanAt: Date | null };
/**
 * Reads the last check of the ledger, and the end of the last one that found nothing. No row: it
 * was never checked.
 */
export const readVerification: Optional<undefined, ReadVerificationRow> = optional(
  "billing/read-verification",
  `-- billing/read-verification
select v.verification_id, v.started_at, v.ended_at, v.started_by, v.violation_count, v.violations,
  (select max(c.ended_at) from verifications c where c.violation_count = 0) as clean_at
from verifications v
order by v.verification_id desc
limit 1;

-- The ledger is verified by slices, each in a snapshot of its own, while it moves: a snapshot of
-- an hour would keep the server from removing dead rows, and slow down the accounts that are busy.
-- So a check may only compare rows that one transaction always writes together, or that nobody
-- changes any more, and each check below has both of its sides in one statement. The balance of a
-- pool is never compared with all charges of its account, which no short snapshot can read, but
-- step by step:
--
--   transfers - spent = balance              one snapshot of the account (VerifyAccounts)
--   spent of keys = spent of their pool      the same
--   holds = held and running, by pool, key and manager    the same
--   hours (or days, where the hours are removed; sums of closed months) = spent of keys   the same
--   days = hours                             the same
--   charges = hours                          one snapshot of the hours (VerifyCharges)
--   charges = days without hours, tags       one snapshot of the day (VerifyDays)
--
--   sales of months and of all accounts = sales of days   one snapshot of them (VerifySalesMonth)
--   sales of days = closed days     one snapshot of the days (VerifySales), but for days with
--     charges that the sums of sales do not have yet
--
-- Every settlement writes the charge, its hour, its budgets and its balance in one transaction. So
-- each step holds in every snapshot, and where each step holds, the balance is that of the
-- charges.
--
-- What a person or a management key has spent is compared with the charges that name them: those of
-- open months are added up in the order of their settlement (SumManaged), which nothing joins any
-- more but at its end, and that end is read with what they have spent (VerifyManagers).`,
  () => [],
  (v) => ({ verificationId: v[0], startedAt: v[1], endedAt: v[2], startedBy: v[3], violationCount: v[4], violations: v[5], cleanAt: v[6] }) as never,
  "cleanAt",
);

export type ListOpenMonthsRow = { month: string };
/**
 * Lists the months that are not closed and have charges, hours or tags, in their order.
 */
export const listOpenMonths: Many<undefined, ListOpenMonthsRow> = many(
  "billing/list-open-months",
  `-- billing/list-open-months
with open_from as (
  -- Months are closed in their order.
  select coalesce(max(month) + interval '1 month', '-infinity')::date as day
  from month_closings
), bounds (month) as (
  select to_date(right(c.relname, 7), 'YYYY_MM')
  from pg_inherits i
  join pg_class c on c.oid = i.inhrelid
  where i.inhparent = 'charges'::regclass
  union all
  select date_trunc('month', min(hour), 'UTC')::date from usage_hourly where key_id >= ''
  union all
  select date_trunc('month', max(hour), 'UTC')::date from usage_hourly where key_id >= ''
)
select month::date as month
from generate_series(
  (select greatest(min(month), (select day from open_from)) from bounds)::timestamp,
  (select max(month) from bounds)::timestamp,
  interval '1 month') as series (month)
where exists (select from charges c where c.month = series.month::date)
  or exists (
    select from usage_hourly
    where hour >= series.month at time zone 'utc' and key_id >= ''
      and hour < (series.month + interval '1 month') at time zone 'utc')
  or exists (
    select from tags_daily
    where day >= series.month::date and day < (series.month + interval '1 month')::date)
order by 1`,
  () => [],
  (v) => ({ month: v[0] }) as never,
  "",
);

export type FindAccountsEndRow = { accountId: string | null };
/**
 * Finds the last account of a slice of so many accounts, or of about so many rows. Null: all that
 * are left.
 */
export const findAccountsEnd: One<{ after: string; accounts: bigint | number; rows: bigint | number }, FindAccountsEndRow> = one(
  "billing/find-accounts-end",
  `-- billing/find-accounts-end
select least(
  (select account_id from accounts where account_id > $1
   order by account_id offset $2 limit 1),
  (select account_id from transfers where account_id > $1
   order by account_id offset $3 limit 1),
  (select account_id from usage_hourly where account_id > $1
   order by account_id offset $3 limit 1),
  (select account_id from usage_daily where account_id > $1
   order by account_id offset $3 limit 1)
) as account_id`,
  (p) => [p.after, p.accounts, p.rows],
  (v) => ({ accountId: v[0] }) as never,
  "accountId",
);

export type FindChargesEndRow = { accountId: string; at: Date };
/**
 * Finds the end of a slice of at least so many charges of a month: the end of an hour or a day of
 * an account. No row: the slice has all that are left.
 * `unit`: `hour` or `day`
 */
export const findChargesEnd: Optional<{ unit: string; month: string; accountId: string; at: Date | string; charges: bigint | number }, FindChargesEndRow> = optional(
  "billing/find-charges-end",
  `-- billing/find-charges-end
select account_id, date_trunc($1, admitted_at, 'UTC') + ('1 ' || $1)::interval as at
from charges
where month = $2::date and amount >= 0
  and (account_id, admitted_at) >= ($3, $4::timestamptz)
order by account_id, admitted_at
offset $5 limit 1`,
  (p) => [p.unit, p.month, p.accountId, p.at, p.charges],
  (v) => ({ accountId: v[0], at: v[1] }) as never,
  "",
);

export type FindIdsEndRow = { requestId: string; accountId: string };
/**
 * Finds the end of a slice of so many request ids. No row: the slice has all that are left.
 * `monthsFrom`: the first open month
 */
export const findIdsEnd: Optional<{ monthsFrom: string; requestId: string; accountId: string; charges: bigint | number }, FindIdsEndRow> = optional(
  "billing/find-ids-end",
  `-- billing/find-ids-end
select request_id, account_id
from charges
where month >= $1::date and (request_id, account_id) >= ($2, $3)
order by request_id, account_id
offset $4 limit 1`,
  (p) => [p.monthsFrom, p.requestId, p.accountId, p.charges],
  (v) => ({ requestId: v[0], accountId: v[1] }) as never,
  "",
);

export type VerifyAccountsRow = { invariant: string; subject: string; detail: string };
/**
 * Checks balances, budgets, days, holds and payments of the accounts after one and up to another.
 * Each row is a violation, at most 100 per invariant.
 * `months`: as `ListOpenMonths` found them
 */
export const verifyAccounts: Many<{ after: string; upto: string; months: readonly string[] }, VerifyAccountsRow> = many(
  "billing/verify-accounts",
  `-- billing/verify-accounts
with open_from as (
  -- Months are closed in their order.
  select coalesce(max(month) + interval '1 month', '-infinity')::date as day
  from month_closings
), progress as (
  select hours_from, removed_to, closed_to from usage_progress
), summed_days as (
  select account_id, key_id, model, (hour at time zone 'utc')::date as day,
    sum(input)::bigint as input, sum(output)::bigint as output, sum(thinking)::bigint as thinking,
    sum(cache_write_5m)::bigint as cache_write_5m, sum(cache_write_1h)::bigint as cache_write_1h,
    sum(cache_read)::bigint as cache_read, sum(web_searches)::bigint as web_searches,
    sum(amount)::bigint as amount,
    sum(amount_input)::bigint as amount_input, sum(amount_output)::bigint as amount_output,
    sum(amount_cache)::bigint as amount_cache, sum(amount_thinking)::bigint as amount_thinking,
    sum(requests)::bigint as requests, sum(completed)::bigint as completed,
    sum(failed)::bigint as failed, sum(cut)::bigint as cut,
    sum(cache_saved)::bigint as cache_saved, sum(first_event_1)::bigint as first_event_1,
    sum(first_event_2)::bigint as first_event_2, sum(first_event_3)::bigint as first_event_3,
    sum(first_event_4)::bigint as first_event_4, sum(first_event_5)::bigint as first_event_5,
    sum(first_event_6)::bigint as first_event_6, sum(first_event_7)::bigint as first_event_7,
    sum(first_event_8)::bigint as first_event_8, sum(first_event_9)::bigint as first_event_9,
    sum(first_event_10)::bigint as first_event_10, sum(first_event_11)::bigint as first_event_11,
    sum(first_event_12)::bigint as first_event_12, sum(first_event_13)::bigint as first_event_13,
    sum(first_event_14)::bigint as first_event_14, sum(first_event_15)::bigint as first_event_15,
    sum(first_event_16)::bigint as first_event_16, sum(first_event_17)::bigint as first_event_17,
    sum(first_event_18)::bigint as first_event_18, sum(first_event_19)::bigint as first_event_19,
    sum(first_event_20)::bigint as first_event_20, sum(first_event_21)::bigint as first_event_21
  from usage_hourly
  where account_id > $1 and account_id <= $2
  group by 1, 2, 3, 4
), checks (invariant, subject, detail) as (
  select 'posted = transfers - charges', p.account_id || '/' || p."family",
    format('posted %s, transfers %s, charges %s', p.posted, coalesce(t.amount, 0), p.spent)
  from pools p
  left join (
    select account_id, "family", sum(amount) as amount
    from transfers
    where account_id > $1 and account_id <= $2
    group by account_id, "family"
  ) t using (account_id, "family")
  where p.account_id > $1 and p.account_id <= $2
    and p.posted <> coalesce(t.amount, 0) - p.spent
  union all
  select 'spent = that of its keys', p.account_id || '/' || p."family",
    format('spent %s, keys %s', p.spent, coalesce(b.spent, 0))
  from pools p
  left join (
    select account_id, "family", sum(spent) as spent
    from budgets
    where account_id > $1 and account_id <= $2 and strpos(payer, ':') = 0
    group by account_id, "family"
  ) b using (account_id, "family")
  where p.account_id > $1 and p.account_id <= $2 and p.spent <> coalesce(b.spent, 0)
  union all
  select 'held = holds', p.account_id || '/' || p."family",
    format('held %s, holds %s, running %s, requests %s', p.held, coalesce(h.amount, 0), p.running,
      coalesce(h.requests, 0))
  from pools p
  left join (
    select account_id, "family", sum(amount) as amount, count(*) as requests
    from holds
    where account_id > $1 and account_id <= $2
    group by account_id, "family"
  ) h using (account_id, "family")
  where p.account_id > $1 and p.account_id <= $2
    and (p.held <> coalesce(h.amount, 0) or p.running <> coalesce(h.requests, 0))
  union all
  select 'held <= posted unless in debt', account_id || '/' || "family",
    format('posted %s, held %s', posted, held)
  from pools
  where account_id > $1 and account_id <= $2 and held > posted and not in_debt
  union all
  select 'status of a pool = status of its account', p.account_id || '/' || p."family",
    format('pool %s, account %s', p.account_status, a.status)
  from pools p
  join accounts a using (account_id)
  where p.account_id > $1 and p.account_id <= $2 and p.account_status <> a.status
  union all
  select 'budget = its charges and holds', concat_ws('/', account_id, key_id),
    format('spent %s, charges %s, held %s, holds %s, running %s, requests %s',
      b.spent, x.spent, b.held, x.held, b.running, x.running)
  from (
    select k.account_id, k.key_id, b.spent, b.held, b.running, b.is_limited
    from keys k
    left join budgets b
      on b.account_id = k.account_id and b."family" = k."family" and b.payer = k.key_id
    where k.account_id > $1 and k.account_id <= $2
  ) b
  full join (
    select account_id, key_id, sum(spent) as spent, sum(held) as held, sum(running) as running
    from (
      select account_id, key_id, amount as spent, 0 as held, 0 as running
      from summed_days, progress
      where day >= (select day from open_from) and (day, account_id) > (hours_from, removed_to)
      union all
      select account_id, key_id, amount, 0, 0
      from usage_daily, progress
      where account_id > $1 and account_id <= $2
        and day >= (select day from open_from) and (day, account_id) <= (hours_from, removed_to)
      union all
      select account_id, key_id, amount, 0, 0
      from closed_months
      where account_id > $1 and account_id <= $2 and month < (select day from open_from)
      union all
      select account_id, key_id, 0, amount, 1
      from holds
      where account_id > $1 and account_id <= $2
    ) parts
    group by account_id, key_id
  ) x using (account_id, key_id)
  where (b.spent, b.held, b.running) is distinct from (coalesce(x.spent, 0),
    case when b.is_limited then coalesce(x.held, 0) else 0 end,
    case when b.is_limited then coalesce(x.running, 0) else 0 end)
  union all
  select 'budget = its charges and holds', concat_ws('/', account_id, "family", payer),
    format('held %s, holds %s, running %s, requests %s', b.held, h.held, b.running, h.running)
  from (
    select account_id, "family", payer, held, running, b.is_limited
    from budgets b
    where account_id > $1 and account_id <= $2 and strpos(payer, ':') > 0
  ) b
  full join (
    select account_id, "family", manager as payer, sum(amount) as held, count(*) as running
    from holds
    where account_id > $1 and account_id <= $2 and manager is not null
    group by account_id, "family", manager
  ) h using (account_id, "family", payer)
  where (b.held, b.running) is distinct from (
    case when b.is_limited then coalesce(h.held, 0) else 0 end,
    case when b.is_limited then coalesce(h.running, 0) else 0 end)
  union all
  select 'days = charges', concat_ws('/', account_id, key_id, model, day),
    format('amount %s, and its month has no charges', amount)
  from usage_daily, progress
  where account_id > $1 and account_id <= $2
    and day >= (select day from open_from) and (day, account_id) <= (hours_from, removed_to)
    and date_trunc('month', day)::date <> all ($3::date[])
  union all
  select 'days = hours', concat_ws('/', account_id, key_id, model, day),
    format('amount %s and %s, requests %s and %s', u.amount, h.amount, u.requests, h.requests)
  from (
    select account_id, key_id, model, day,
      input, output, thinking, cache_write_5m, cache_write_1h, cache_read, web_searches,
      amount, amount_input, amount_output, amount_cache, amount_thinking,
      requests, completed, failed, cut,
      cache_saved, first_event_1, first_event_2, first_event_3, first_event_4, first_event_5,
      first_event_6, first_event_7, first_event_8, first_event_9, first_event_10, first_event_11,
      first_event_12, first_event_13, first_event_14, first_event_15, first_event_16,
      first_event_17, first_event_18, first_event_19, first_event_20, first_event_21
    from usage_daily
    where account_id > $1 and account_id <= $2
  ) u
  full join summed_days h using (account_id, key_id, model, day)
  cross join progress g
  -- Rows of an open day count when it is closed.
  where (day, account_id) > (g.hours_from, g.removed_to) and day < g.closed_to
    and u is distinct from h
  union all
  select 'days = closed months', concat_ws('/', account_id, key_id, model, month),
    format('amount %s and %s, requests %s and %s', u.amount, c.amount, u.requests, c.requests)
  from (
    select account_id, key_id, model, date_trunc('month', day)::date as month,
      sum(input) as input, sum(output) as output, sum(thinking) as thinking,
      sum(cache_write_5m) as cache_write_5m, sum(cache_write_1h) as cache_write_1h,
      sum(cache_read) as cache_read, sum(web_searches) as web_searches,
      sum(amount) as amount, sum(amount_input) as amount_input, sum(amount_output) as amount_output,
      sum(amount_cache) as amount_cache, sum(amount_thinking) as amount_thinking,
      sum(requests) as requests, sum(completed) as completed, sum(failed) as failed,
      sum(cut) as cut
    from usage_daily
    where account_id > $1 and account_id <= $2 and day < (select day from open_from)
    group by 1, 2, 3, 4
  ) u
  full join (
    select account_id, key_id, model, month,
      sum(input) as input, sum(output) as output, sum(thinking) as thinking,
      sum(cache_write_5m) as cache_write_5m, sum(cache_write_1h) as cache_write_1h,
      sum(cache_read) as cache_read, sum(web_searches) as web_searches,
      sum(amount) as amount, sum(amount_input) as amount_input, sum(amount_output) as amount_output,
      sum(amount_cache) as amount_cache, sum(amount_thinking) as amount_thinking,
      sum(requests) as requests, sum(completed) as completed, sum(failed) as failed,
      sum(cut) as cut
    from closed_months
    where account_id > $1 and account_id <= $2 and month < (select day from open_from)
    group by 1, 2, 3, 4
  ) c using (account_id, key_id, model, month)
  where u is distinct from c
  union all
  select 'sums = their parts', concat_ws('/', account_id, key_id, model, at),
    format('amount %s, requests %s', amount, requests)
  from (
    select account_id, key_id, model, hour::text as at,
      input, output, thinking, cache_write_5m, cache_write_1h, cache_read, web_searches,
      amount, amount_input, amount_output, amount_cache, amount_thinking,
      requests, completed, failed, cut,
      cache_saved, first_event_1, first_event_2, first_event_3, first_event_4, first_event_5,
      first_event_6, first_event_7, first_event_8, first_event_9, first_event_10, first_event_11,
      first_event_12, first_event_13, first_event_14, first_event_15, first_event_16,
      first_event_17, first_event_18, first_event_19, first_event_20, first_event_21
    from usage_hourly
    where account_id > $1 and account_id <= $2
    union all
    select account_id, key_id, model, day::text,
      input, output, thinking, cache_write_5m, cache_write_1h, cache_read, web_searches,
      amount, amount_input, amount_output, amount_cache, amount_thinking,
      requests, completed, failed, cut,
      cache_saved, first_event_1, first_event_2, first_event_3, first_event_4, first_event_5,
      first_event_6, first_event_7, first_event_8, first_event_9, first_event_10, first_event_11,
      first_event_12, first_event_13, first_event_14, first_event_15, first_event_16,
      first_event_17, first_event_18, first_event_19, first_event_20, first_event_21
    from usage_daily
    where account_id > $1 and account_id <= $2
  ) sums
  where amount <> amount_input + amount_output + amount_cache + amount_thinking
    or requests <> completed + failed + cut
    or requests < first_event_1 + first_event_2 + first_event_3 + first_event_4 + first_event_5
      + first_event_6 + first_event_7 + first_event_8 + first_event_9 + first_event_10
      + first_event_11 + first_event_12 + first_event_13 + first_event_14 + first_event_15
      + first_event_16 + first_event_17 + first_event_18 + first_event_19 + first_event_20
      + first_event_21
    or least(
      input, output, thinking, cache_write_5m, cache_write_1h, cache_read, web_searches,
      amount, amount_input, amount_output, amount_cache, amount_thinking,
      requests, completed, failed, cut,
      first_event_1, first_event_2, first_event_3, first_event_4, first_event_5, first_event_6,
      first_event_7, first_event_8, first_event_9, first_event_10, first_event_11, first_event_12,
      first_event_13, first_event_14, first_event_15, first_event_16, first_event_17,
      first_event_18, first_event_19, first_event_20, first_event_21
    ) < 0
  union all
  select 'never hold and charge', account_id || '/' || request_id, ''
  from holds
  join charges using (account_id, request_id)
  where account_id > $1 and account_id <= $2
  union all
  select 'no hold of a closed month', account_id || '/' || request_id, month::text
  from holds
  where account_id > $1 and account_id <= $2 and month < (select day from open_from)
  union all
  select 'no hold outlives its deadline', account_id || '/' || request_id, deadline::text
  from holds
  where account_id > $1 and account_id <= $2 and deadline < now() - interval '3 minutes'
  union all
  -- Its processes poll once a second, and declare a node dead after 12 silent polls.
  select 'no hold of a dead node', account_id || '/' || request_id, node_id
  from holds
  where account_id > $1 and account_id <= $2
    and admitted_at < now() - interval '30 seconds'
    and node_id is not null
    and not exists (
      select 1 from nodes n where n.node_id = holds.node_id and n.silent_polls < 30)
  union all
  -- A crash between a transfer and its note leaves a row without the id, until the next sweep.
  select 'credits of payments = their transfers', account_id || '/' || idempotency_key,
    format('expected %s, transfers %s; kind %s %s, amount %s %s, transfer_id %s %s',
      count(*) filter (where not is_made), count(*) filter (where is_made), min(kind), max(kind),
      min(amount), max(amount), min(transfer_id), max(transfer_id))
  from (
    select o.account_id, 'pay:' || g.order_id || '#' || g.n as idempotency_key, o."family",
      case when g.micro + g.bonus_micro > 0 then 'deposit' else 'chargeback' end as kind,
      g.micro + g.bonus_micro as amount,
      g.transfer_id, false as is_made
    from payment_grants g
    join payment_orders o on o.order_id = g.order_id
    where o.account_id > $1 and o.account_id <= $2
    union all
    select o.account_id, 'refund:' || r.order_id || '#' || r.n, o."family", 'refund',
      -r.micro - r.bonus_micro, r.transfer_id, false
    from payment_refunds r
    join payment_orders o on o.order_id = r.order_id
    where o.account_id > $1 and o.account_id <= $2
      and (r.transfer_id is not null or r.state = 'asked')
    union all
    select o.account_id, 'refund:' || r.order_id || '#' || r.n || '/cancel', o."family",
      'adjustment', r.micro + r.bonus_micro, r.cancel_transfer_id, false
    from payment_refunds r
    join payment_orders o on o.order_id = r.order_id
    where o.account_id > $1 and o.account_id <= $2
      and (r.cancel_transfer_id is not null or r.state = 'cancelling')
    union all
    select u.account_id, 'promo:' || u.code_id, p."family", 'bonus', p.bonus_micro, u.transfer_id,
      false
    from promotion_uses u
    join promotions p on p.code_id = u.code_id
    where u.account_id > $1 and u.account_id <= $2
    union all
    select account_id, idempotency_key, "family", kind, amount, transfer_id, true
    from transfers
    where account_id > $1 and account_id <= $2
      and (kind = 'deposit' or idempotency_key like 'pay:%' or idempotency_key like 'refund:%'
        or idempotency_key like 'promo:%')
  ) both_sides
  group by account_id, idempotency_key
  having count(*) filter (where not is_made) <> 1
    or count(*) filter (where is_made) = 0 and max(transfer_id) is not null
    or min("family") <> max("family") or min(kind) <> max(kind) or min(amount) <> max(amount)
    or min(transfer_id) <> max(transfer_id)
  union all
  select 'moved credits = out of one pool and into the other',
    account_id || '/' || substr(idempotency_key, strpos(substr(idempotency_key, 6), ':') + 6),
    format('transfers %s, pools %s, sum %s', count(*), count(distinct "family"), sum(amount))
  from transfers
  where account_id > $1 and account_id <= $2 and kind = 'adjustment'
    and (idempotency_key like 'move:out:%' or idempotency_key like 'move:in:%')
  group by account_id, substr(idempotency_key, strpos(substr(idempotency_key, 6), ':') + 6)
  having count(*) <> 2 or count(distinct "family") <> 2 or sum(amount) <> 0
  union all
  select 'a credited order has a receipt', o.order_id, ''
  from payment_orders o
  where o.account_id > $1 and o.account_id <= $2
    and exists (select 1 from payment_grants g where g.order_id = o.order_id and g.micro > 0)
    and not exists (
      select 1 from payment_documents d where d.order_id = o.order_id and d.kind = 'receipt')
)
select invariant as invariant, subject as subject, detail as detail
from (
  select *, row_number() over (partition by invariant order by subject) as position from checks
) numbered
where position <= 100`,
  (p) => [p.after, p.upto, p.months],
  (v) => ({ invariant: v[0], subject: v[1], detail: v[2] }) as never,
  "",
);

export type VerifyChargesRow = { invariant: string; subject: string; detail: string };
/**
 * Checks charges of a month and their hours, from an hour of an account on and before another, in
 * the order of accounts and times. Each row is a violation, at most 100 per invariant. None if the
 * month was closed meanwhile.
 */
export const verifyCharges: Many<{ month: string; fromAccount: string; fromAt: Date | string; toAccount: string; toAt: Date | string }, VerifyChargesRow> = many(
  "billing/verify-charges",
  `-- billing/verify-charges
with open_from as (
  -- Months are closed in their order.
  select coalesce(max(month) + interval '1 month', '-infinity')::date as day
  from month_closings
), slice as materialized (
  select account_id, request_id, "family", key_id, model,
    date_trunc('hour', admitted_at, 'UTC') as hour, price_version, granted_output, hold, overrun,
    output_over, thinking_over, cost, cost_over, prompt_over, prompt_above,
    input, output, thinking, cache_write_5m, cache_write_1h, cache_read, web_searches,
    amount, amount_input, amount_output, amount_cache, amount_thinking,
    requests, completed, failed, cut, cache_saved
  from charge_sums
  where month = $1::date and month >= (select day from open_from)
    and (account_id, admitted_at) >= ($2, $3::timestamptz)
    and (account_id, admitted_at) < ($4, $5::timestamptz)
), charged_hours as (
  select account_id, key_id, model, hour,
    sum(input)::bigint as input, sum(output)::bigint as output, sum(thinking)::bigint as thinking,
    sum(cache_write_5m)::bigint as cache_write_5m, sum(cache_write_1h)::bigint as cache_write_1h,
    sum(cache_read)::bigint as cache_read, sum(web_searches)::bigint as web_searches,
    sum(amount)::bigint as amount,
    sum(amount_input)::bigint as amount_input, sum(amount_output)::bigint as amount_output,
    sum(amount_cache)::bigint as amount_cache, sum(amount_thinking)::bigint as amount_thinking,
    sum(requests)::bigint as requests, sum(completed)::bigint as completed,
    sum(failed)::bigint as failed, sum(cut)::bigint as cut,
    sum(cache_saved)::bigint as cache_saved
  from slice
  group by 1, 2, 3, 4
), checks (invariant, subject, detail) as (
  select 'charge <= hold', account_id || '/' || request_id,
    format('amount %s, hold %s', amount, hold)
  from slice
  where amount > hold or amount < 0
  union all
  select 'charge = tokens x price', account_id || '/' || request_id,
    format('amount %s, overrun %s, price %s', amount, overrun, price_version)
  from slice
  where amount is distinct from least(hold, cost)
    or amount + overrun is distinct from cost + cost_over
  union all
  select 'price is of the length of the prompt', account_id || '/' || request_id,
    format('prompt %s, price %s', input::bigint + cache_read + cache_write_5m + cache_write_1h,
      price_version)
  from slice
  where input::bigint + cache_read + cache_write_5m + cache_write_1h <= coalesce(prompt_over, -1)
    or input::bigint + cache_read + cache_write_5m + cache_write_1h > prompt_above
  union all
  select 'charged output <= granted output', account_id || '/' || request_id,
    format('output %s, thinking %s, granted %s', output, thinking, granted_output)
  from slice
  where output::bigint + thinking > granted_output
    or output_over::bigint + thinking_over > 0 and output::bigint + thinking < granted_output
  union all
  select 'charge is of the pool of its key', concat_ws('/', s.account_id, s.key_id),
    format('charges of %s, key of %s', s."family", k."family")
  from (select distinct account_id, key_id, "family" from slice) s
  left join keys k using (key_id)
  where (k.account_id, k."family") is distinct from (s.account_id, s."family")
  union all
  select 'hours = charges', concat_ws('/', account_id, key_id, model, hour),
    format('amount %s and %s, requests %s and %s', u.amount, c.amount, u.requests, c.requests)
  from (
    select account_id, key_id, model, hour,
      input, output, thinking, cache_write_5m, cache_write_1h, cache_read, web_searches,
      amount, amount_input, amount_output, amount_cache, amount_thinking,
      requests, completed, failed, cut, cache_saved
    from usage_hourly
    where hour >= $1::date::timestamp at time zone 'utc'
      and hour < ($1::date + interval '1 month') at time zone 'utc'
      and (account_id, hour) >= ($2, $3::timestamptz)
      and (account_id, hour) < ($4, $5::timestamptz)
  ) u
  full join charged_hours c using (account_id, key_id, model, hour)
  cross join usage_progress g
  -- The hours before are removed.
  where (u.hour is not null
      or ((hour at time zone 'utc')::date, account_id) > (g.hours_from, g.removed_to))
    and (hour at time zone 'utc')::date >= (select day from open_from)
    and u is distinct from c
)
select invariant as invariant, subject as subject, detail as detail
from (
  select *, row_number() over (partition by invariant order by subject) as position from checks
) numbered
where position <= 100`,
  (p) => [p.month, p.fromAccount, p.fromAt, p.toAccount, p.toAt],
  (v) => ({ invariant: v[0], subject: v[1], detail: v[2] }) as never,
  "",
);

export type VerifyDaysRow = { invariant: string; subject: string; detail: string };
/**
 * Checks days without hours of a month, and its tags, from a day of an account on and before
 * another, in the order of accounts and times. Each row is a violation, at most 100 per invariant.
 * None if the month was closed meanwhile.
 */
export const verifyDays: Many<{ month: string; fromAccount: string; fromAt: Date | string; toAccount: string; toAt: Date | string }, VerifyDaysRow> = many(
  "billing/verify-days",
  `-- billing/verify-days
with open_from as (
  -- Months are closed in their order.
  select coalesce(max(month) + interval '1 month', '-infinity')::date as day
  from month_closings
), slice as materialized (
  select account_id, key_id, model, (admitted_at at time zone 'utc')::date as day, tags,
    input, output, thinking, cache_write_5m, cache_write_1h, cache_read, web_searches,
    amount, amount_input, amount_output, amount_cache, amount_thinking,
    requests, completed, failed, cut, cache_saved
  from charge_sums
  where month = $1::date and month >= (select day from open_from)
    and (account_id, admitted_at) >= ($2, $3::timestamptz)
    and (account_id, admitted_at) < ($4, $5::timestamptz)
    and (tags is not null
      or ((admitted_at at time zone 'utc')::date, account_id)
        <= (select hours_from, removed_to from usage_progress))
), charged_days as (
  select account_id, key_id, model, day,
    sum(input)::bigint as input, sum(output)::bigint as output, sum(thinking)::bigint as thinking,
    sum(cache_write_5m)::bigint as cache_write_5m, sum(cache_write_1h)::bigint as cache_write_1h,
    sum(cache_read)::bigint as cache_read, sum(web_searches)::bigint as web_searches,
    sum(amount)::bigint as amount,
    sum(amount_input)::bigint as amount_input, sum(amount_output)::bigint as amount_output,
    sum(amount_cache)::bigint as amount_cache, sum(amount_thinking)::bigint as amount_thinking,
    sum(requests)::bigint as requests, sum(completed)::bigint as completed,
    sum(failed)::bigint as failed, sum(cut)::bigint as cut,
    sum(cache_saved)::bigint as cache_saved
  from slice
  group by 1, 2, 3, 4
), kept_tags as materialized (
  select account_id, tag, value, key_id, model, day,
    input, output, thinking, cache_write_5m, cache_write_1h, cache_read, web_searches,
    amount, amount_input, amount_output, amount_cache, amount_thinking,
    requests, completed, failed, cut
  from tags_daily
  where day >= $1::date and day < $1::date + interval '1 month'
    and account_id >= $2 and account_id <= $4
    and (account_id, day::timestamp at time zone 'utc') >= ($2, $3::timestamptz)
    and (account_id, day::timestamp at time zone 'utc') < ($4, $5::timestamptz)
), charged_tags as (
  -- A value that its day does not keep is one of the others.
  select account_id, tag collate "C" as tag,
    case when k.value is null then '(other)' else t.value end collate "C" as value,
    key_id, model, day,
    sum(input)::bigint as input, sum(output)::bigint as output, sum(thinking)::bigint as thinking,
    sum(cache_write_5m)::bigint as cache_write_5m, sum(cache_write_1h)::bigint as cache_write_1h,
    sum(cache_read)::bigint as cache_read, sum(web_searches)::bigint as web_searches,
    sum(amount)::bigint as amount,
    sum(amount_input)::bigint as amount_input, sum(amount_output)::bigint as amount_output,
    sum(amount_cache)::bigint as amount_cache, sum(amount_thinking)::bigint as amount_thinking,
    sum(requests)::bigint as requests, sum(completed)::bigint as completed,
    sum(failed)::bigint as failed, sum(cut)::bigint as cut
  from slice
  cross join lateral jsonb_each_text(tags) as t (tag, value)
  left join (select distinct account_id, tag, value, day from kept_tags) k
    using (account_id, tag, value, day)
  group by 1, 2, 3, 4, 5, 6
), checks (invariant, subject, detail) as (
  select 'days = charges', concat_ws('/', account_id, key_id, model, day),
    format('amount %s and %s, requests %s and %s', u.amount, c.amount, u.requests, c.requests)
  from (
    select account_id, key_id, model, day,
      input, output, thinking, cache_write_5m, cache_write_1h, cache_read, web_searches,
      amount, amount_input, amount_output, amount_cache, amount_thinking,
      requests, completed, failed, cut, cache_saved
    from usage_daily
    where day >= $1::date and day < $1::date + interval '1 month'
      and (account_id, day) >= ($2, ($3::timestamptz at time zone 'utc')::date)
      and (account_id, day) < ($4, ($5::timestamptz at time zone 'utc')::date)
  ) u
  full join charged_days c using (account_id, key_id, model, day)
  cross join usage_progress g
  where day >= (select day from open_from) and (day, account_id) <= (g.hours_from, g.removed_to)
    and u is distinct from c
  union all
  select 'tags of days = charges', concat_ws('/', account_id, tag, value, key_id, model, day),
    format('amount %s and %s, requests %s and %s', u.amount, c.amount, u.requests, c.requests)
  from kept_tags u
  full join charged_tags c using (account_id, tag, value, key_id, model, day)
  cross join usage_progress g
  where day < g.tags_to and day >= (select day from open_from) and u is distinct from c
)
select invariant as invariant, subject as subject, detail as detail
from (
  select *, row_number() over (partition by invariant order by subject) as position from checks
) numbered
where position <= 100`,
  (p) => [p.month, p.fromAccount, p.fromAt, p.toAccount, p.toAt],
  (v) => ({ invariant: v[0], subject: v[1], detail: v[2] }) as never,
  "",
);

export type VerifyIdsRow = { invariant: string; subject: string; detail: string };
/**
 * Finds the request ids with several charges in open months, from one on and before another.
 * `monthsFrom`: the first open month
 */
export const verifyIds: Many<{ monthsFrom: string; fromRequest: string; fromAccount: string; toRequest: string; toAccount: string }, VerifyIdsRow> = many(
  "billing/verify-ids",
  `-- billing/verify-ids
select 'one charge per request' as invariant, account_id || '/' || request_id as subject,
  format('%s charges', count(*)) as detail
from charges
where month >= $1::date
  and (request_id, account_id) >= ($2, $3)
  and (request_id, account_id) < ($4, $5)
group by request_id, account_id
having count(*) > 1
order by 2
limit 100`,
  (p) => [p.monthsFrom, p.fromRequest, p.fromAccount, p.toRequest, p.toAccount],
  (v) => ({ invariant: v[0], subject: v[1], detail: v[2] }) as never,
  "",
);

export type FindManagersRow = { settledTo: string };
/**
 * Returns the time of now, and one some minutes ago: no settlement that began before it is still to
 * come. No row: no person and no management key has a budget.
 */
export const findManagers: Optional<undefined, FindManagersRow> = optional(
  "billing/find-managers",
  `-- billing/find-managers
select (now() - interval '2 minutes')::text as settled_to
where exists (select from budgets where strpos(payer, ':') > 0)`,
  () => [],
  (v) => ({ settledTo: v[0] }) as never,
  "",
);

export type FindSettledEndRow = { settledAt: string | null };
/**
 * Finds the end of a slice of at least so many charges of open months in the order of their
 * settlement. Null: the slice has all that are left before a time.
 * `monthsFrom`: the first open month
 */
export const findSettledEnd: One<{ monthsFrom: string; after: Date | string; settledTo: Date | string; charges: bigint | number }, FindSettledEndRow> = one(
  "billing/find-settled-end",
  `-- billing/find-settled-end
select (
  select settled_at::text
  from charges
  where month >= $1::date and amount >= 0
    and settled_at > $2::timestamptz and settled_at <= $3::timestamptz
  order by settled_at
  offset $4 limit 1
) as settled_at`,
  (p) => [p.monthsFrom, p.after, p.settledTo, p.charges],
  (v) => ({ settledAt: v[0] }) as never,
  "settledAt",
);

export type SumManagedRow = { accountId: string; family: string; payer: string; amount: bigint };
/**
 * Sums the charges of a slice by the person or management key that they name.
 * `monthsFrom`: the first open month
 */
export const sumManaged: Many<{ monthsFrom: string; after: Date | string; upto: Date | string }, SumManagedRow> = many(
  "billing/sum-managed",
  `-- billing/sum-managed
select account_id, "family", manager as payer, sum(amount)::bigint as amount
from charges
where month >= $1::date and amount >= 0 and manager is not null
  and settled_at > $2::timestamptz and settled_at <= $3::timestamptz
group by account_id, "family", manager`,
  (p) => [p.monthsFrom, p.after, p.upto],
  (v) => ({ accountId: v[0], family: v[1], payer: v[2], amount: v[3] }) as never,
  "",
);

export type VerifyManagersRow = { invariant: string; subject: string; detail: string };
/**
 * Checks what persons and management keys have spent: by sums of charges of open months up to a
 * time, by the charges after it, and by the sums of closed months. Each row is a violation, at most
 * 100. None if a month was closed meanwhile.
 * `monthsFrom`: the first open month
 * `lastClosed`: the last closed month; null: none
 */
export const verifyManagers: Many<{ accountIds: readonly string[]; families: readonly string[]; payers: readonly string[]; amounts: readonly (bigint | number)[]; monthsFrom: string; after: Date | string; lastClosed: string | null }, VerifyManagersRow> = many(
  "billing/verify-managers",
  `-- billing/verify-managers
with summed as (
  select account_id, "family", payer, sum(amount) as spent
  from (
    select account_id, "family", payer, amount
    from unnest($1::text[], $2::text[], $3::text[], $4::bigint[])
      as s (account_id, "family", payer, amount)
    union all
    select account_id, "family", manager, amount
    from charges
    where month >= $5::date and amount >= 0 and manager is not null
      and settled_at > $6::timestamptz
    union all
    select account_id, "family", payer, amount
    from closed_budgets
    where month <= $7::date
  ) parts
  group by account_id, "family", payer
)
select 'budget = its charges and holds' as invariant,
  concat_ws('/', account_id, "family", payer) as subject,
  format('spent %s, charges %s', b.spent, s.spent) as detail
from (
  select account_id, "family", payer, spent from budgets where strpos(payer, ':') > 0
) b
full join summed s using (account_id, "family", payer)
where b.spent is distinct from coalesce(s.spent, 0)
  and (select max(month) from month_closings) is not distinct from $7::date
order by 2
limit 100`,
  (p) => [p.accountIds, p.families, p.payers, p.amounts, p.monthsFrom, p.after, p.lastClosed],
  (v) => ({ invariant: v[0], subject: v[1], detail: v[2] }) as never,
  "",
);

export type ListClosedMonthsRow = { month: string };
/**
 * Lists the closed months, in their order.
 */
export const listClosedMonths: Many<undefined, ListClosedMonthsRow> = many(
  "billing/list-closed-months",
  `-- billing/list-closed-months
select month from month_closings order by month`,
  () => [],
  (v) => ({ month: v[0] }) as never,
  "",
);

export type VerifyClosedMonthRow = { invariant: string; subject: string; detail: string };
/**
 * Checks the sums of a closed month. Those of an open one belong to a closing under way. A row is a
 * violation.
 */
export const verifyClosedMonth: Many<{ month: string }, VerifyClosedMonthRow> = many(
  "billing/verify-closed-month",
  `-- billing/verify-closed-month
select 'a closed month = its sums' as invariant, month::text as subject,
  format('amount %s and %s, charges %s and %s', m.amount, c.amount, m.charges, c.requests)
    as detail
from month_closings m
cross join (
  select coalesce(sum(amount), 0) as amount, coalesce(sum(requests), 0) as requests
  from closed_months
  where month = $1::date
) c
where m.month = $1::date and (m.amount, m.charges) <> (c.amount, c.requests)`,
  (p) => [p.month],
  (v) => ({ invariant: v[0], subject: v[1], detail: v[2] }) as never,
  "",
);

export type ListSalesMonthsRow = { month: string };
/**
 * Lists the months with sums of sales or days that are closed, in their order. Months whose charges
 * were removed before there were such sums have none.
 */
export const listSalesMonths: Many<undefined, ListSalesMonthsRow> = many(
  "billing/list-sales-months",
  `-- billing/list-sales-months
with bounds (month) as (
  select min(month) from month_closings
  union all
  select min(to_date(right(c.relname, 7), 'YYYY_MM'))
  from pg_inherits i
  join pg_class c on c.oid = i.inhrelid
  where i.inhparent = 'charges'::regclass
  union all
  select min(month) from sales_monthly
), ends (month) as (
  select date_trunc('month', closed_to::timestamp)::date from usage_progress
  union all
  select max(month) from sales_monthly
)
select month::date as month
from generate_series((select min(month) from bounds)::timestamp,
  (select max(month) from ends)::timestamp, interval '1 month') as series (month)
where not exists (
    select from month_archives a where a.month = series.month::date and a.dropped_at is not null)
  or exists (select from sales_monthly s where s.month = series.month::date)
order by 1`,
  () => [],
  (v) => ({ month: v[0] }) as never,
  "",
);

export type FindSalesEndRow = { day: string; accountId: string };
/**
 * Finds the end of a slice of so many sums of sales of a month, in the order of days and accounts.
 * No row: the slice has all that are left.
 */
export const findSalesEnd: Optional<{ month: string; day: string; accountId: string; rows: bigint | number }, FindSalesEndRow> = optional(
  "billing/find-sales-end",
  `-- billing/find-sales-end
select day, account_id
from sales_daily
where day < $1::date + interval '1 month' and (day, account_id) >= ($2::date, $3)
order by day, account_id
offset $4 limit 1`,
  (p) => [p.month, p.day, p.accountId, p.rows],
  (v) => ({ day: v[0], accountId: v[1] }) as never,
  "",
);

export type VerifySalesRow = { invariant: string; subject: string; detail: string };
/**
 * Compares sums of sales with the closed days, from a day of an account on and before another. Each
 * row is a violation, at most 100.
 */
export const verifySales: Many<{ fromDay: string; fromAccount: string; toDay: string; toAccount: string }, VerifySalesRow> = many(
  "billing/verify-sales",
  `-- billing/verify-sales
with progress as (
  select least(g.closed_to, (s.complete_to at time zone 'utc')::date) as days_to, s.settled_at,
    s.request_id, s.account_id
  from usage_progress g
  cross join sales_progress s
  where not s.is_emptying
), sold as (
  select day, account_id, "family", model,
    sum(input)::bigint as input, sum(output)::bigint as output, sum(thinking)::bigint as thinking,
    sum(cache_write_5m)::bigint as cache_write_5m, sum(cache_write_1h)::bigint as cache_write_1h,
    sum(cache_read)::bigint as cache_read, sum(web_searches)::bigint as web_searches,
    sum(amount)::bigint as amount, sum(requests)::bigint as requests
  from sales_daily
  where (day, account_id) >= ($1::date, $2)
    and (day, account_id) < ($3::date, $4) and day < (select days_to from progress)
  group by 1, 2, 3, 4
), used as (
  select u.day, u.account_id, k."family" collate "C" as "family", u.model collate "C" as model,
    sum(u.input)::bigint as input, sum(u.output)::bigint as output,
    sum(u.thinking)::bigint as thinking, sum(u.cache_write_5m)::bigint as cache_write_5m,
    sum(u.cache_write_1h)::bigint as cache_write_1h, sum(u.cache_read)::bigint as cache_read,
    sum(u.web_searches)::bigint as web_searches,
    sum(u.amount)::bigint as amount, sum(u.requests)::bigint as requests
  from usage_daily u
  join keys k on k.key_id = u.key_id
  where u.day >= $1 and u.day <= $3
    and (u.day, u.account_id) >= ($1, $2)
    and (u.day, u.account_id) < ($3, $4) and u.day < (select days_to from progress)
  group by 1, 2, 3, 4
), differing as (
  select account_id, "family", model, day, s.amount as sold, u.amount as used,
    s.requests as sold_requests, u.requests as used_requests
  from sold s
  full join used u using (day, account_id, "family", model)
  where s is distinct from u
)
select 'sales = days' as invariant,
  concat_ws('/', d.account_id, d."family", d.model, d.day) as subject,
  format('amount %s and %s, requests %s and %s', d.sold, d.used, d.sold_requests, d.used_requests)
    as detail
from differing d
cross join progress p
where not exists (
  select from charges c
  where c.account_id = d.account_id and c.month = date_trunc('month', d.day::timestamp)::date
    and c.admitted_at >= d.day::timestamp at time zone 'utc'
    and c.admitted_at < (d.day + 1)::timestamp at time zone 'utc' and c.amount >= 0
    and (c.settled_at, c.request_id, c.account_id) > (p.settled_at, p.request_id, p.account_id))
order by 2
limit 100`,
  (p) => [p.fromDay, p.fromAccount, p.toDay, p.toAccount],
  (v) => ({ invariant: v[0], subject: v[1], detail: v[2] }) as never,
  "",
);

export type FindSalesAccountRow = { accountId: string };
/**
 * Finds the last account of a slice of so many sums of sales of a month. No row: the slice has all
 * that are left.
 */
export const findSalesAccount: Optional<{ month: string; after: string; rows: bigint | number }, FindSalesAccountRow> = optional(
  "billing/find-sales-account",
  `-- billing/find-sales-account
select account_id
from sales_monthly
where month = $1::date and account_id > $2
order by account_id
offset $3 limit 1`,
  (p) => [p.month, p.after, p.rows],
  (v) => ({ accountId: v[0] }) as never,
  "",
);

export type VerifySalesMonthRow = { invariant: string; subject: string; detail: string };
/**
 * Compares sums of sales of a month with those of its days, of the accounts after one and up to
 * another. Each row is a violation, at most 100. While they are written anew, none.
 */
export const verifySalesMonth: Many<{ month: string; after: string; upto: string }, VerifySalesMonthRow> = many(
  "billing/verify-sales-month",
  `-- billing/verify-sales-month
with summed as (
  select account_id, "family", model, provider, cost_version,
    sum(input)::bigint as input, sum(output)::bigint as output, sum(thinking)::bigint as thinking,
    sum(cache_write_5m)::bigint as cache_write_5m, sum(cache_write_1h)::bigint as cache_write_1h,
    sum(cache_read)::bigint as cache_read, sum(web_searches)::bigint as web_searches,
    sum(amount)::bigint as amount, sum(overrun)::bigint as overrun, sum(cost_pico) as cost_pico,
    sum(requests)::bigint as requests, sum(uncosted)::bigint as uncosted
  from sales_daily
  where day >= $1::date and day < $1::date + interval '1 month'
    and account_id > $2 and account_id <= $3
  group by 1, 2, 3, 4, 5
), kept as (
  select account_id, "family", model, provider, cost_version, input, output, thinking,
    cache_write_5m, cache_write_1h, cache_read, web_searches, amount, overrun,
    cost_pico::numeric as cost_pico, requests, uncosted
  from sales_monthly
  where month = $1 and account_id > $2 and account_id <= $3
)
select 'sales of a month = its days' as invariant,
  concat_ws('/', account_id, "family", model, provider, cost_version, $1::text) as subject,
  format('amount %s and %s, cost %s and %s, requests %s and %s', k.amount, s.amount, k.cost_pico,
    s.cost_pico, k.requests, s.requests) as detail
from kept k
full join summed s using (account_id, "family", model, provider, cost_version)
where k is distinct from s and not (select is_emptying from sales_progress)
order by 2
limit 100`,
  (p) => [p.month, p.after, p.upto],
  (v) => ({ invariant: v[0], subject: v[1], detail: v[2] }) as never,
  "",
);

export type VerifySalesTotalsRow = { invariant: string; subject: string; detail: string };
/**
 * Compares sums of sales of all accounts with those of each, from a day on and before another. Each
 * row is a violation, at most 100. While they are written anew, none.
 */
export const verifySalesTotals: Many<{ fromDay: string; toDay: string }, VerifySalesTotalsRow> = many(
  "billing/verify-sales-totals",
  `-- billing/verify-sales-totals
with summed as (
  select day, "family", model, provider, cost_version,
    sum(input)::bigint as input, sum(output)::bigint as output, sum(thinking)::bigint as thinking,
    sum(cache_write_5m)::bigint as cache_write_5m, sum(cache_write_1h)::bigint as cache_write_1h,
    sum(cache_read)::bigint as cache_read, sum(web_searches)::bigint as web_searches,
    sum(amount)::bigint as amount, sum(overrun)::bigint as overrun, sum(cost_pico) as cost_pico,
    sum(requests)::bigint as requests, sum(uncosted)::bigint as uncosted
  from sales_daily
  where day >= $1::date and day < $2::date
  group by 1, 2, 3, 4, 5
), kept as (
  select day, "family", model, provider, cost_version, input, output, thinking, cache_write_5m,
    cache_write_1h, cache_read, web_searches, amount, overrun, cost_pico::numeric as cost_pico,
    requests, uncosted
  from sales_totals
  where day >= $1 and day < $2
)
select 'sales of all accounts = those of each' as invariant,
  concat_ws('/', "family", model, provider, cost_version, day) as subject,
  format('amount %s and %s, cost %s and %s, requests %s and %s', k.amount, s.amount, k.cost_pico,
    s.cost_pico, k.requests, s.requests) as detail
from kept k
full join summed s using (day, "family", model, provider, cost_version)
where k is distinct from s and not (select is_emptying from sales_progress)
order by 2
limit 100`,
  (p) => [p.fromDay, p.toDay],
  (v) => ({ invariant: v[0], subject: v[1], detail: v[2] }) as never,
  "",
);

export type VerifyTotalsRow = { invariant: string; subject: string; detail: string };
/**
 * Checks uses of promotions and numbers of documents. Each row is a violation.
 */
export const verifyTotals: Many<undefined, VerifyTotalsRow> = many(
  "billing/verify-totals",
  `-- billing/verify-totals
with checks (invariant, subject, detail) as (
  select 'uses of a promotion = its count', p.code_id,
    format('used %s, uses %s', p.used, coalesce(u.uses, 0))
  from promotions p
  left join (select code_id, count(*) as uses from promotion_uses group by code_id) u
    on u.code_id = p.code_id
  where p.used <> coalesce(u.uses, 0)
  union all
  select 'numbers of documents have no gap', concat_ws('/', n.seller, n.kind, n.year),
    format('last number %s, documents %s, first %s, last %s',
      n.last, coalesce(d.documents, 0), d.first, d.last)
  from payment_numbers n
  left join (
    select seller, kind, year, count(*) as documents, min(n) as first, max(n) as last
    from payment_documents
    group by seller, kind, year
  ) d on d.seller = n.seller and d.kind = n.kind and d.year = n.year
  where (d.documents, d.first, d.last) is distinct from (n.last::bigint, 1, n.last)
)
select invariant as invariant, subject as subject, detail as detail
from checks
order by 1, 2
limit 100`,
  () => [],
  (v) => ({ invariant: v[0], subject: v[1], detail: v[2] }) as never,
  "",
);
