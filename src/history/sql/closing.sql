-- name: AddBlocks :run
-- Adds digests of the next charges of a month, which have lines of this form.
-- :first  number of the first block
-- :charges  how many each has
-- :settled_ats  of its last charge, as the request and the account
insert into closing_blocks (month, number, charges, sha256, form, settled_at, request_id,
  account_id)
select :month::date, :first::integer + position::integer - 1, charges, sha256, :form::integer,
  settled_at, request_id, account_id
from unnest(:charges::integer[], :digests::bytea[], :settled_ats::timestamptz[],
    :request_ids::text[], :account_ids::text[])
  with ordinality as b (charges, sha256, settled_at, request_id, account_id, position);

-- name: AddSums :run
-- Adds up charges of a month by account, family, key and model, and counts those that break a rule
-- of the ledger, as verify-ledger knows them. Those after a place, up to the one that is last.
-- not each: category  the grant bounds output and thinking alone
insert into closing_sums (account_id, month, "family", key_id, model, input, output, thinking,
  cache_write_5m, cache_write_1h, cache_read, web_searches, amount, amount_input, amount_output,
  amount_cache, amount_thinking, requests, completed, failed, cut, overrun, broken)
select account_id, month, "family", key_id, model, sum(input), sum(output), sum(thinking),
  sum(cache_write_5m), sum(cache_write_1h), sum(cache_read), sum(web_searches),
  sum(amount), sum(amount_input), sum(amount_output), sum(amount_cache), sum(amount_thinking),
  sum(requests), sum(completed), sum(failed), sum(cut), sum(overrun),
  count(*) filter (where amount is distinct from least(hold, cost)
    or amount + overrun is distinct from cost + cost_over
    or output::bigint + thinking > granted_output
    or output_over::bigint + thinking_over > 0 and output::bigint + thinking < granted_output)
from charge_sums
where month = :month::date
  and (settled_at, request_id, account_id) > (:settled_at::timestamptz, :request_id, :account_id)
  and (settled_at, request_id, account_id)
    <= (:last_settled_at::timestamptz, :last_request_id, :last_account_id)
group by account_id, month, "family", key_id, model
on conflict (account_id, month, "family", key_id, model) do update
set (input, output, thinking, cache_write_5m, cache_write_1h, cache_read, web_searches,
    amount, amount_input, amount_output, amount_cache, amount_thinking,
    requests, completed, failed, cut) = row (
    closing_sums.input + excluded.input, closing_sums.output + excluded.output,
    closing_sums.thinking + excluded.thinking,
    closing_sums.cache_write_5m + excluded.cache_write_5m,
    closing_sums.cache_write_1h + excluded.cache_write_1h,
    closing_sums.cache_read + excluded.cache_read,
    closing_sums.web_searches + excluded.web_searches, closing_sums.amount + excluded.amount,
    closing_sums.amount_input + excluded.amount_input,
    closing_sums.amount_output + excluded.amount_output,
    closing_sums.amount_cache + excluded.amount_cache,
    closing_sums.amount_thinking + excluded.amount_thinking,
    closing_sums.requests + excluded.requests, closing_sums.completed + excluded.completed,
    closing_sums.failed + excluded.failed, closing_sums.cut + excluded.cut),
  overrun = closing_sums.overrun + excluded.overrun,
  broken = closing_sums.broken + excluded.broken;

-- name: AddBudgets :run
-- Adds up the same charges by the person or management key that they name.
insert into closed_budgets (account_id, "family", payer, month, amount)
select account_id, "family", manager, month, sum(amount)
from charges
where month = :month::date and amount >= 0 and manager is not null
  and (settled_at, request_id, account_id) > (:settled_at::timestamptz, :request_id, :account_id)
  and (settled_at, request_id, account_id)
    <= (:last_settled_at::timestamptz, :last_request_id, :last_account_id)
group by account_id, "family", manager, month
on conflict (account_id, "family", payer, month) do update
set amount = closed_budgets.amount + excluded.amount;

-- name: FindSumsEnd :one
-- Finds the last account of a slice of about so many sums of a month. Null: all that are left.
select (
  select account_id
  from closing_sums
  where account_id > :after and month = :month::date
  order by account_id
  offset :sums limit 1
) as "account_id?";

-- name: InsertClosedSums :run
-- Stores the sums of a month that is being closed, of the accounts after one and up to another,
-- where an earlier attempt has not.
insert into closed_months (account_id, month, "family", key_id, model, input, output, thinking,
  cache_write_5m, cache_write_1h, cache_read, web_searches, amount, amount_input, amount_output,
  amount_cache, amount_thinking, requests, completed, failed, cut, overrun)
select account_id, month, "family", key_id, model, input, output, thinking, cache_write_5m,
  cache_write_1h, cache_read, web_searches, amount, amount_input, amount_output, amount_cache,
  amount_thinking, requests, completed, failed, cut, overrun
from closing_sums
where month = :month::date and account_id > :after and account_id <= :upto
on conflict do nothing;

-- name: CompareClosedSums :one
-- Counts the keys and models whose stored sums of a month differ from those that were added up, of
-- the accounts after one and up to another.
select count(*)::integer as "differences!"
from (
  select account_id, "family", key_id, model, input, output, thinking, cache_write_5m,
    cache_write_1h, cache_read, web_searches, amount, amount_input, amount_output, amount_cache,
    amount_thinking, requests, completed, failed, cut, overrun
  from closing_sums
  where month = :month::date and account_id > :after and account_id <= :upto
) s
full join (
  select account_id, "family", key_id, model, input, output, thinking, cache_write_5m,
    cache_write_1h, cache_read, web_searches, amount, amount_input, amount_output, amount_cache,
    amount_thinking, requests, completed, failed, cut, overrun
  from closed_months
  where month = :month::date and account_id > :after and account_id <= :upto
) c using (account_id, "family", key_id, model)
where s is distinct from c;

-- name: InsertClosing :one
-- Closes a month whose sums are stored. Returns what is stored.
-- :sha256  of its lines
-- :form  of these
insert into month_closings (month, charges, amount, sha256, form)
select :month::date, coalesce(sum(requests), 0)::bigint, coalesce(sum(amount), 0)::bigint, :sha256,
  :form
from closed_months
where month = :month::date
returning month, charges, amount as amount_micro, sha256, form, closed_at;

-- name: PutArchive :run
-- Records a verified export of a month. Changes no row: the charges were removed before.
-- :sha256  of its lines
insert into month_archives (month, sha256, place, verified_at)
values (:month::date, :sha256, :place, now())
on conflict (month) do update
set sha256 = excluded.sha256, place = excluded.place, verified_at = excluded.verified_at
where month_archives.dropped_at is null;

-- name: FindClosing :optional
-- The closing of a month, and whether its charges were removed. No row: it is open.
select c.month as "month!", c.charges as "charges!", c.amount as "amount_micro!",
  c.sha256 as "sha256!", c.form as "form!", c.closed_at as "closed_at!",
  a.dropped_at is not null as "is_dropped!"
from month_closings c
left join month_archives a on a.month = c.month
where c.month = :month::date;

-- name: FindUnsent :optional
-- Returns a row if a month has charges after the last one that is in a sink.
select 1 as "unsent!"
from charges c
where c.month = :month::date and c.amount >= 0
  and (c.settled_at, c.request_id, c.account_id)
    > (:settled_at::timestamptz, :request_id, :account_id)
order by c.settled_at, c.request_id
limit 1;

-- name: LockSales :one
-- How far the charges are in the sums of sales, which change no more until the end of the
-- transaction. They lack a month that they are being removed from.
select settled_at::text as "settled_at!", request_id, account_id, is_emptying
from sales_progress
for update;

-- name: ReadClosingState :one
-- What decides whether a month can be closed: the current month, the last closed one, the holds of
-- this month and earlier ones, and whether its days are written.
select date_trunc('month', now() at time zone 'utc')::date as "current_month!",
  (select max(month) from month_closings) as "last_closed?",
  h.holds as "holds!", h.oldest as "oldest?",
  least(g.closed_to, g.tags_to) >= (:month::date + interval '1 month')::date as "has_days!"
from usage_progress g
cross join (
  select count(*)::integer as holds, min(admitted_at) as oldest
  from holds
  where month <= :month::date
) h;

-- name: ReadProgress :one
-- How far the charges of a month are read for its closing, whether their lines have a form, and a
-- time in the past. Its place is null if nothing is read.
select b.blocks as "blocks!", b.charges as "charges!", b.has_form as "has_form!",
  (now() - :hours::integer * interval '1 hour')::text as "past!",
  l.settled_at::text as "settled_at?", l.request_id as "request_id?", l.account_id as "account_id?"
from (
  select count(*)::integer as blocks, coalesce(sum(charges), 0)::bigint as charges,
    coalesce(bool_and(form = :form::integer), true) as has_form
  from closing_blocks
  where month = :month::date
) b
left join closing_blocks l on l.month = :month::date and l.number = b.blocks;

-- name: DigestBlock :one
-- The digest of the lines of the next charges of a month, in the order of their settlement, and the
-- last of these charges. Without charges, of nothing.
-- :settled_at  after this one, as the request and the account
-- :before  settled before this time
select count(*)::integer as "charges!",
  sha256(convert_to(
    string_agg(line, E'\n' order by settled_at, request_id, account_id) || E'\n', 'UTF8'))
    as "sha256?",
  max(settled_at)::text as "settled_at?",
  (array_agg(request_id order by settled_at, request_id, account_id))[count(*)::integer]
    as "request_id?",
  (array_agg(account_id order by settled_at, request_id, account_id))[count(*)::integer]
    as "account_id?"
from (
  select c.settled_at, c.request_id, c.account_id, c.line
  from charge_lines_1 c
  where c.month = :month::date
    and (c.settled_at, c.request_id, c.account_id)
      > (:settled_at::timestamptz, :request_id, :account_id)
    and c.settled_at < :before::timestamptz
  order by c.settled_at, c.request_id, c.account_id
  limit :rows
) block;

-- name: ReadLines :one
-- The lines of the next charges of a month, in the order of their settlement, and the last of these
-- charges. Without charges, of nothing.
-- :settled_at  after this one, as the request and the account
select count(*)::integer as "charges!",
  string_agg(line, E'\n' order by settled_at, request_id, account_id) || E'\n' as "lines?",
  max(settled_at)::text as "settled_at?",
  (array_agg(request_id order by settled_at, request_id, account_id))[count(*)::integer]
    as "request_id?",
  (array_agg(account_id order by settled_at, request_id, account_id))[count(*)::integer]
    as "account_id?"
from (
  select c.settled_at, c.request_id, c.account_id, c.line
  from charge_lines_1 c
  where c.month = :month::date
    and (c.settled_at, c.request_id, c.account_id)
      > (:settled_at::timestamptz, :request_id, :account_id)
  order by c.settled_at, c.request_id, c.account_id
  limit :rows
) page;

-- name: CheckSums :one
-- How many charges of a month are summed up, and how many of them break a rule of the ledger.
select coalesce(sum(requests), 0)::bigint as "charges!",
  coalesce(sum(broken), 0)::bigint as "broken!"
from closing_sums
where month = :month::date;

-- name: CombineBlocks :one
-- The digest of a month from those of its blocks.
select sha256(coalesce(string_agg(sha256, '' order by number), '')) as "sha256!"
from closing_blocks
where month = :month::date;

-- name: CompareClosing :one
-- Counts the accounts, keys and models whose sums of a month, as they were added up, differ from
-- those of its days: of the accounts after one and up to another.
select count(*)::integer as "differences!"
from (
  select a.account_id, key_id, model, sum(input) as input, sum(output) as output,
    sum(thinking) as thinking, sum(cache_write_5m) as cache_write_5m,
    sum(cache_write_1h) as cache_write_1h, sum(cache_read) as cache_read,
    sum(web_searches) as web_searches, sum(amount) as amount,
    sum(amount_input) as amount_input, sum(amount_output) as amount_output,
    sum(amount_cache) as amount_cache, sum(amount_thinking) as amount_thinking,
    sum(requests) as requests, sum(completed) as completed, sum(failed) as failed, sum(cut) as cut
  from (
    select account_id from accounts where account_id > :after and account_id <= :upto
    union
    select account_id
    from closing_sums
    where month = :month::date and account_id > :after and account_id <= :upto
  ) a
  cross join lateral (
    select *
    from usage_daily
    where account_id = a.account_id and day >= :month::date
      and day < (:month::date + interval '1 month')::date
    offset 0
  ) u
  group by a.account_id, key_id, model
) d
full join (
  select account_id, key_id, model, sum(input) as input, sum(output) as output,
    sum(thinking) as thinking, sum(cache_write_5m) as cache_write_5m,
    sum(cache_write_1h) as cache_write_1h, sum(cache_read) as cache_read,
    sum(web_searches) as web_searches, sum(amount) as amount,
    sum(amount_input) as amount_input, sum(amount_output) as amount_output,
    sum(amount_cache) as amount_cache, sum(amount_thinking) as amount_thinking,
    sum(requests) as requests, sum(completed) as completed, sum(failed) as failed, sum(cut) as cut
  from closing_sums
  where month = :month::date and account_id > :after and account_id <= :upto
  group by account_id, key_id, model
) c using (account_id, key_id, model)
where (d.input, d.output, d.thinking, d.cache_write_5m, d.cache_write_1h, d.cache_read,
    d.web_searches, d.amount, d.amount_input, d.amount_output, d.amount_cache, d.amount_thinking,
    d.requests, d.completed, d.failed, d.cut)
  is distinct from (c.input, c.output, c.thinking, c.cache_write_5m, c.cache_write_1h,
    c.cache_read, c.web_searches, c.amount, c.amount_input, c.amount_output, c.amount_cache,
    c.amount_thinking, c.requests, c.completed, c.failed, c.cut);

-- name: ListClosings :many
-- The closed months, oldest first, what became of their charges, and the current UTC month. One row
-- without a month if none is closed.
select c.month as "month?", coalesce(a.sha256 = c.sha256, false) as "is_exported!",
  a.dropped_at is not null as "is_dropped!",
  date_trunc('month', now() at time zone 'utc')::date as "current_month!"
from (select 1) as always
left join month_closings c on true
left join month_archives a on a.month = c.month
order by c.month;

-- name: ListTimes :many
-- Times that divide the charges of a month into parts that were read, in their order.
-- :blocks  of a part
select settled_at::text as "settled_at!"
from closing_blocks
where month = :month::date and number % :blocks::integer = 0
order by number;

-- name: MarkDropped :run
-- Records that the charges of a month are removed, if a verified export of them exists. Changes no
-- row: it does not, or they were removed before.
update month_archives
set dropped_at = now()
where month = :month::date and dropped_at is null
  and sha256 = (select sha256 from month_closings where month = :month::date);

-- name: RemoveBlocks :run
-- Removes the digests of the charges of a month that were read for its closing.
delete from closing_blocks
where month = :month::date;

-- name: RemoveBudgets :run
-- Removes what was added up by persons and management keys for the closing of a month, unless it
-- has blocks or is closed.
delete from closed_budgets
where month = :month::date
  and not exists (select from closing_blocks where month = :month::date)
  and not exists (select from month_closings where month = :month::date);

-- name: RemoveSums :run
-- Removes some of the sums that were added up for the closing of a month, unless it has blocks, and
-- of those of closed months.
delete from closing_sums
where ctid = any (array (
  select ctid
  from closing_sums
  where month = :month::date
      and not exists (select from closing_blocks where month = :month::date)
    or month in (select month from month_closings)
  limit :sums));
