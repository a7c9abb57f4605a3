-- name: PlaceHolds :run
-- Stores holds and adds them to their pools and months. The caller has locked the pools and found
-- that they and the months cover the holds. Unique violation: another transaction took one of the
-- requests in the meantime. Times of admission are whole milliseconds, as in JavaScript.
-- :secret_ids[]?  null: the caller presented none
-- :node_ids[]?  null: the hold belongs to a calling service
-- :tags[]?  null: none
-- :made_by[]?  null: the gateway
-- :deadlines_ms  from now
with placed as (
  insert into holds (account_id, request_id, "family", key_id, secret_id, model, month, amount,
    price_version, node_id, nonce, admitted_at, deadline, granted_output, tags,
    made_by)
  select account_id, request_id, "family", key_id, secret_id, model,
    date_trunc('month', now() at time zone 'utc')::date, amount, price_version, node_id, nonce,
    date_trunc('milliseconds', now()), now() + deadline * interval '1 millisecond',
    granted_output, tags, made_by
  from unnest(:account_ids::text[], :request_ids::text[], :families::text[], :key_ids::text[],
      :secret_ids::text[], :models::text[], :amounts::bigint[], :price_versions::text[],
      :nonces::text[], :deadlines_ms::integer[], :node_ids::text[], :granted_outputs::integer[],
      :tags::jsonb[], :made_by::text[])
    as h (account_id, request_id, "family", key_id, secret_id, model,
      amount, price_version, nonce, deadline, node_id, granted_output, tags, made_by)
  returning account_id, "family", key_id, month, amount
), in_pools as (
  update pools
  set held = pools.held + d.amount
  from (
    select account_id, "family", sum(amount)::bigint as amount
    from placed
    group by account_id, "family"
  ) d
  where pools.account_id = d.account_id and pools."family" = d."family"
)
-- The first hold of a key in a month creates the row of the month.
insert into key_months (account_id, key_id, month, held)
select account_id, key_id, month, sum(amount)
from placed
group by account_id, key_id, month
order by account_id, key_id, month
on conflict (account_id, key_id, month) do update
set held = key_months.held + excluded.held;

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
-- Finds the pool that pays for a key. No row: no such key.
select account_id, "family" from keys where key_id = :key_id;

-- name: ReadKeys :many
-- Reads the fields of keys that admission checks, with their current UTC month. A key without a row
-- for the month has neither spent nor held credits in it.
-- =status 'active' | 'paused' | 'expired' | 'revoked'
select k.key_id as "key_id!", k.allowed_models as "allowed_models!", k.monthly_cap as "cap?",
  case when k.status = 'revoked' then 'revoked'
    when k.expires_at <= now() then 'expired'
    when k.paused then 'paused'
    else 'active' end as "status!",
  coalesce(m.spent, 0) as "spent!", coalesce(m.held, 0) as "held!"
from keys k
left join key_months m
  on m.account_id = k.account_id and m.key_id = k.key_id
    and m.month = date_trunc('month', now() at time zone 'utc')::date
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
  p.web_search
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
  p.web_search
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

-- name: ReadPastMonths :many
-- Reads the spent and held credits of keys, in the months in which growing holds were admitted.
select m.key_id, m.month, m.spent, m.held
from key_months m
join unnest(:account_ids::text[], :key_ids::text[], :months::date[])
  as wanted (account_id, key_id, month)
  using (account_id, key_id, month);

-- name: LockPools :many
-- Locks pools in the order of their ids. The lock of a pool guards everything below it: the months
-- of its keys, its roll-ups and its holds.
-- =account_status accounts.status
select p.account_id, p."family", p.posted, p.held, p.in_debt, p.account_status
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
