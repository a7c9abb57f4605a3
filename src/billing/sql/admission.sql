-- name: PlaceHolds :run
-- Stores holds and adds them to their pools. The caller has locked the pools and found that they
-- and the budgets cover the holds. Unique violation: another transaction took one of the requests
-- in the meantime. Times of admission are whole milliseconds, as in JavaScript.
-- :secret_ids[]?  null: the caller presented none
-- :node_ids[]?  null: the hold belongs to a calling service
-- :tags[]?  null: none
-- :made_by[]?  null: the gateway
-- :managers[]?  whose row counts it beside that of the key; null: none
-- :deadlines_ms  from now
-- :today  the UTC day of the transaction, as `NodeClock` tells the time
-- :monday  on which its week began
-- :first  on which its month began
with placed as (
  insert into holds (account_id, request_id, "family", key_id, secret_id, model, month, amount,
    price_version, node_id, nonce, admitted_at, deadline, granted_output, tags,
    made_by, manager)
  select account_id, request_id, "family", key_id, secret_id, model,
    date_trunc('month', now() at time zone 'utc')::date, amount, price_version, node_id, nonce,
    date_trunc('milliseconds', now()), now() + deadline * interval '1 millisecond',
    granted_output, tags, made_by, manager
  from unnest(:account_ids::text[], :request_ids::text[], :families::text[], :key_ids::text[],
      :secret_ids::text[], :models::text[], :amounts::bigint[], :price_versions::text[],
      :nonces::text[], :deadlines_ms::integer[], :node_ids::text[], :granted_outputs::integer[],
      :tags::jsonb[], :made_by::text[], :managers::text[])
    as h (account_id, request_id, "family", key_id, secret_id, model,
      amount, price_version, nonce, deadline, node_id, granted_output, tags, made_by, manager)
  returning account_id, "family", amount
)
update pools p
set held = p.held + d.amount, running = p.running + d.requests,
  -- The first change of a UTC day begins the windows that begin with it.
  day = greatest(p.day, :today::date),
  day_base = case when p.day < :today then p.spent else p.day_base end,
  week_base = case when p.day < :monday::date then p.spent else p.week_base end,
  month_base = case when p.day < :first::date then p.spent else p.month_base end
from (
  select account_id, "family", sum(amount)::bigint as amount, count(*)::integer as requests
  from placed
  group by account_id, "family"
) d
where p.account_id = d.account_id and p."family" = d."family";

-- name: PlaceHold :optional
-- Stores one hold as PlaceHolds does, where its pool, its key and its node are as this process last
-- saw them: without limits, and the pool with the same credits. No row: one of them is not, and
-- nothing is stored. The caller has locked the pool before, so that what it waited for is seen
-- here.
-- :posted  of the pool, as the amount was decided on
-- :held  the same
-- :allowed_models  of the key, the same
-- :secret_id?  null: the caller presented none
-- :node_id  of this process
-- :owner_id?  null: the hold belongs to a calling service
-- :tags?  null: none
-- :made_by?  null: the gateway
-- :deadline_ms  from now
with today as materialized (
  select (now() at time zone 'utc')::date as today,
    date_trunc('week', now() at time zone 'utc')::date as monday,
    date_trunc('month', now() at time zone 'utc')::date as first
), node as materialized (
  -- Against its deletion: a node that was declared dead must not admit requests.
  select node_id from nodes where node_id = :node_id for key share
), in_pool as (
  update pools p
  set held = p.held + :amount, running = p.running + 1,
    -- The first change of a UTC day begins the windows that begin with it.
    day = greatest(p.day, t.today),
    day_base = case when p.day < t.today then p.spent else p.day_base end,
    week_base = case when p.day < t.monday then p.spent else p.week_base end,
    month_base = case when p.day < t.first then p.spent else p.month_base end
  from today t
  cross join node
  where p.account_id = :account_id and p."family" = :family
    and p.posted = :posted and p.held = :held
    and not p.in_debt and p.account_status = 'active' and not p.is_limited
    and exists (
      select 1
      from keys k
      where k.key_id = :key_id and k.status = 'active' and not k.paused
        and (k.expires_at is null or k.expires_at > now())
        and k.allowed_models = :allowed_models
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
      where secret_id = :secret_id and (revoked_at is not null or expires_at <= now())
    )
  returning p.account_id, p."family", t.first
)
insert into holds (account_id, request_id, "family", key_id, secret_id, model, month, amount,
  price_version, node_id, nonce, admitted_at, deadline, granted_output, tags, made_by)
select account_id, :request_id, "family", :key_id, :secret_id, :model, first, :amount::bigint,
  :price_version, :owner_id, :nonce, date_trunc('milliseconds', now()),
  now() + :deadline_ms::integer * interval '1 millisecond', :granted_output, :tags::jsonb, :made_by
from in_pool
returning admitted_at, month;

-- name: AddToBudgets :run
-- Adds holds that PlaceHolds stores to budgets with a limit: each amount to that of one payer.
-- :today  as for PlaceHolds, and the others
update budgets b
set held = b.held + d.amount, running = b.running + d.requests,
  day = greatest(b.day, :today::date),
  day_base = case when b.day < :today then b.spent else b.day_base end,
  week_base = case when b.day < :monday::date then b.spent else b.week_base end,
  month_base = case when b.day < :first::date then b.spent else b.month_base end
from (
  select account_id, "family", payer, sum(amount)::bigint as amount, count(*)::integer as requests
  from unnest(:account_ids::text[], :families::text[], :payers::text[], :amounts::bigint[])
    as h (account_id, "family", payer, amount)
  group by account_id, "family", payer
) d
where b.account_id = d.account_id and b."family" = d."family" and b.payer = d.payer;

-- name: RefuseCharged :run
-- Fails with a unique violation when one of these requests was charged lately; stores nothing. Runs
-- after the holds of the requests were inserted: it sees charges that other transactions committed
-- since this one read the used requests, and transactions that insert the same request wait for
-- this commit. So a request is never both held and charged. Such a charge is of the current UTC
-- month or of the one before.
insert into charges (account_id, request_id, month, "family", key_id, secret_id, model,
  input, output, thinking, cache_write_5m, cache_write_1h, cache_read, web_searches,
  price_version, granted_output, hold, amount, overrun, output_over, thinking_over, outcome, basis,
  attempts, admitted_at, settled_at, tags)
select c.account_id, c.request_id, c.month, c."family", c.key_id, c.secret_id, c.model,
  c.input, c.output, c.thinking, c.cache_write_5m, c.cache_write_1h, c.cache_read, c.web_searches,
  c.price_version, c.granted_output, c.hold, c.amount, c.overrun, c.output_over, c.thinking_over,
  c.outcome, c.basis, c.attempts, c.admitted_at, c.settled_at, c.tags
from unnest(:account_ids::text[], :request_ids::text[]) as d (account_id, request_id)
-- The offset makes the planner look up each request, rather than read both months.
cross join lateral (
  select *
  from charges
  where account_id = d.account_id and request_id = d.request_id
    and month between
      (date_trunc('month', now() at time zone 'utc') - interval '1 month')::date
      and date_trunc('month', now() at time zone 'utc')::date
  offset 0
) c;

-- name: FindPayer :optional
-- Finds the pool that pays for a key, and the price list of its account. No row: no such key.
select k.account_id, k."family", a.price_list_id
from keys k
join accounts a using (account_id)
where k.key_id = :key_id;

-- name: ReadKeys :many
-- Reads the fields of keys that admission checks, with their budgets and those of the persons or
-- management keys that manage them, each as `base/budgets.ts` reads it. A budget without a limit is
-- null, and a manager without one.
-- =status 'active' | 'paused' | 'expired' | 'revoked'
select k.key_id as "key_id!", k.account_id as "account_id!", k."family" as "family!",
  k.allowed_models as "allowed_models!",
  case when k.status = 'revoked' then 'revoked'
    when k.expires_at <= now() then 'expired'
    when k.paused then 'paused'
    else 'active' end as "status!",
  case when b.is_limited then array[b.day - date '1970-01-01', b.spent, b.held, b.running,
    b.day_base, b.week_base, b.month_base, b.total_base,
    coalesce(b.day_limit, -1), coalesce(b.week_limit, -1), coalesce(b.month_limit, -1),
    coalesce(b.total_limit, -1), coalesce(b.running_limit, -1)] end as "budget?",
  m.payer as "manager?",
  case when m.is_limited then array[m.day - date '1970-01-01', m.spent, m.held, m.running,
    m.day_base, m.week_base, m.month_base, m.total_base,
    coalesce(m.day_limit, -1), coalesce(m.week_limit, -1), coalesce(m.month_limit, -1),
    coalesce(m.total_limit, -1), coalesce(m.running_limit, -1)] end as "manager_budget?"
from keys k
join budgets b on b.account_id = k.account_id and b."family" = k."family" and b.payer = k.key_id
left join budgets m
  -- Null: no look-up for a key that nobody manages.
  on m.account_id = k.account_id and m."family" = k."family"
    and m.payer = nullif(k.managed_by, '') and m.is_limited
where k.key_id = any(:key_ids::text[]);

-- name: ReadDeadSecrets :many
-- Returns those of these secrets that were revoked or have expired.
select secret_id, revoked_at is not null as "revoked!"
from key_secrets
where secret_id = any(:secret_ids::text[]) and (revoked_at is not null or expires_at <= now());

-- name: ReadUsedRequests :many
-- Returns those of these requests that run or were charged lately, with the prices at which they
-- were admitted. Lately: in the current UTC month or in the one before. An id that was made a
-- moment ago cannot have been used before.
select u.account_id as "account_id!", u.request_id as "request_id!", u.node_id as "node_id?",
  u.nonce as "nonce!", u.key_id as "key_id!", u.model as "model!", u.amount as "amount!",
  u.granted_output as "granted_output!", u.admitted_at as "admitted_at!", u.month as "month!",
  p.price_version, p.input, p.output, p.thinking, p.cache_write_5m, p.cache_write_1h, p.cache_read,
  p.web_search, p.prompt_over, p.prompt_above, p.above_price, p.note
from (
  select account_id, request_id, node_id, nonce, key_id, model, amount, granted_output,
    admitted_at, month, price_version
  from holds
  join unnest(:account_ids::text[], :request_ids::text[]) as d (account_id, request_id)
    using (account_id, request_id)
  union all
  select c.account_id, c.request_id, '', '', c.key_id, c.model, 0, c.granted_output, c.admitted_at,
    c.month, c.price_version
  from unnest(:account_ids::text[], :request_ids::text[]) as d (account_id, request_id)
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
join price_versions p using (price_version);

-- name: ReadOldRequests :many
-- Returns those of these requests that were charged before the months of ReadUsedRequests. Only for
-- ids that a caller proposed.
select c.account_id, c.request_id, '' as "node_id!", '' as "nonce!", c.key_id, c.model,
  0::bigint as "amount!", c.granted_output, c.admitted_at, c.month,
  p.price_version, p.input, p.output, p.thinking, p.cache_write_5m, p.cache_write_1h, p.cache_read,
  p.web_search, p.prompt_over, p.prompt_above, p.above_price, p.note
from unnest(:account_ids::text[], :request_ids::text[]) as d (account_id, request_id)
-- The offset makes the planner look up each request, rather than read all months.
cross join lateral (
  select *
  from charges
  where account_id = d.account_id and request_id = d.request_id
    and month < (date_trunc('month', now() at time zone 'utc') - interval '1 month')::date
  offset 0
) c
join price_versions p using (price_version);

-- name: LockPools :many
-- Locks pools in the order of their ids. The lock of a pool guards everything below it: its keys'
-- budgets, its roll-ups and its holds. The budget of a pool is as those of ReadKeys.
-- =account_status accounts.status
select p.account_id, p."family", p.posted, p.held, p.in_debt, p.account_status,
  case when p.is_limited then array[p.day - date '1970-01-01', p.spent, p.held, p.running,
    p.day_base, p.week_base, p.month_base, p.total_base,
    coalesce(p.day_limit, -1), coalesce(p.week_limit, -1), coalesce(p.month_limit, -1),
    coalesce(p.total_limit, -1), coalesce(p.running_limit, -1)] end as "budget?"
from unnest(:account_ids::text[], :families::text[]) as d (account_id, "family")
join pools p using (account_id, "family")
order by p.account_id, p."family"
for update of p;

-- name: TryWrites :run
-- Writes what admissions and settlements write: a hold, a pool, a charge and an hour of usage.
-- Fails where they would: at a lock, on a full disk. The caller rolls back. The rows are of no
-- account.
with placed as (
  insert into holds (account_id, request_id, "family", key_id, model, month, amount,
    price_version, nonce, admitted_at, deadline, granted_output)
  values ('', :request_id, 'v1', '', '', date_trunc('month', now() at time zone 'utc')::date, 0,
    '', '', now(), now(), 0)
), in_pools as (
  update pools set held = held where account_id = ''
), charged as (
  insert into charges (account_id, request_id, month, "family", key_id, model,
    input, output, thinking, cache_write_5m, cache_write_1h, cache_read, web_searches,
    price_version, granted_output, hold, amount, overrun, output_over, thinking_over, outcome,
    basis, admitted_at, settled_at)
  values ('', :request_id, date_trunc('month', now() at time zone 'utc')::date, 'v1', '', '',
    0, 0, 0, 0, 0, 0, 0, '', 0, 0, 0, 0, 0, 0, '', '', now(), now())
)
insert into usage_hourly (account_id, key_id, model, hour) values ('', '', :request_id, now());
