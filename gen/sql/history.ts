// Made of src/history/sql by `npm run generate`. Do not edit.

import { type Many, many, type One, one, type Optional, optional, type Run, run } from "../../src/postgres/statement.ts";

// closing.sql

/**
 * Adds digests of the next charges of a month, which have lines of this form.
 * `first`: number of the first block
 * `charges`: how many each has
 * `settledAts`: of its last charge, as the request and the account
 */
export const addBlocks: Run<{ month: string; first: number; form: number; charges: readonly number[]; digests: readonly Buffer[]; settledAts: readonly (Date | string)[]; requestIds: readonly string[]; accountIds: readonly string[] }> = run(
  "history/add-blocks",
  `-- history/add-blocks
insert into closing_blocks (month, number, charges, sha256, form, settled_at, request_id,
  account_id)
select $1::date, $2::integer + position::integer - 1, charges, sha256, $3::integer,
  settled_at, request_id, account_id
from unnest($4::integer[], $5::bytea[], $6::timestamptz[],
    $7::text[], $8::text[])
  with ordinality as b (charges, sha256, settled_at, request_id, account_id, position)`,
  (p) => [p.month, p.first, p.form, p.charges, p.digests, p.settledAts, p.requestIds, p.accountIds],
);

/**
 * Adds up charges of a month by account, family, key and model, and counts those that break a rule
 * of the ledger, as verify-ledger knows them. Those after a place, up to the one that is last.
 */
export const addSums: Run<{ month: string; settledAt: Date | string; requestId: string; accountId: string; lastSettledAt: Date | string; lastRequestId: string; lastAccountId: string }> = run(
  "history/add-sums",
  `-- history/add-sums
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
where month = $1::date
  and (settled_at, request_id, account_id) > ($2::timestamptz, $3, $4)
  and (settled_at, request_id, account_id)
    <= ($5::timestamptz, $6, $7)
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
  broken = closing_sums.broken + excluded.broken`,
  (p) => [p.month, p.settledAt, p.requestId, p.accountId, p.lastSettledAt, p.lastRequestId, p.lastAccountId],
);

/**
 * Adds up the same charges by the person or management key that they name.
 */
export const addBudgets: Run<{ month: string; settledAt: Date | string; requestId: string; accountId: string; lastSettledAt: Date | string; lastRequestId: string; lastAccountId: string }> = run(
  "history/add-budgets",
  `-- history/add-budgets
insert into closed_budgets (account_id, "family", payer, month, amount)
select account_id, "family", manager, month, sum(amount)
from charges
where month = $1::date and amount >= 0 and manager is not null
  and (settled_at, request_id, account_id) > ($2::timestamptz, $3, $4)
  and (settled_at, request_id, account_id)
    <= ($5::timestamptz, $6, $7)
group by account_id, "family", manager, month
on conflict (account_id, "family", payer, month) do update
set amount = closed_budgets.amount + excluded.amount`,
  (p) => [p.month, p.settledAt, p.requestId, p.accountId, p.lastSettledAt, p.lastRequestId, p.lastAccountId],
);

export type FindSumsEndRow = { accountId: string | null };
/**
 * Finds the last account of a slice of about so many sums of a month. Null: all that are left.
 */
export const findSumsEnd: One<{ after: string; month: string; sums: bigint | number }, FindSumsEndRow> = one(
  "history/find-sums-end",
  `-- history/find-sums-end
select (
  select account_id
  from closing_sums
  where account_id > $1 and month = $2::date
  order by account_id
  offset $3 limit 1
) as account_id`,
  (p) => [p.after, p.month, p.sums],
  (v) => ({ accountId: v[0] }) as never,
  "accountId",
);

/**
 * Stores the sums of a month that is being closed, of the accounts after one and up to another,
 * where an earlier attempt has not.
 */
export const insertClosedSums: Run<{ month: string; after: string; upto: string }> = run(
  "history/insert-closed-sums",
  `-- history/insert-closed-sums
insert into closed_months (account_id, month, "family", key_id, model, input, output, thinking,
  cache_write_5m, cache_write_1h, cache_read, web_searches, amount, amount_input, amount_output,
  amount_cache, amount_thinking, requests, completed, failed, cut, overrun)
select account_id, month, "family", key_id, model, input, output, thinking, cache_write_5m,
  cache_write_1h, cache_read, web_searches, amount, amount_input, amount_output, amount_cache,
  amount_thinking, requests, completed, failed, cut, overrun
from closing_sums
where month = $1::date and account_id > $2 and account_id <= $3
on conflict do nothing`,
  (p) => [p.month, p.after, p.upto],
);

export type CompareClosedSumsRow = { differences: number };
/**
 * Counts the keys and models whose stored sums of a month differ from those that were added up, of
 * the accounts after one and up to another.
 */
export const compareClosedSums: One<{ month: string; after: string; upto: string }, CompareClosedSumsRow> = one(
  "history/compare-closed-sums",
  `-- history/compare-closed-sums
select count(*)::integer as differences
from (
  select account_id, "family", key_id, model, input, output, thinking, cache_write_5m,
    cache_write_1h, cache_read, web_searches, amount, amount_input, amount_output, amount_cache,
    amount_thinking, requests, completed, failed, cut, overrun
  from closing_sums
  where month = $1::date and account_id > $2 and account_id <= $3
) s
full join (
  select account_id, "family", key_id, model, input, output, thinking, cache_write_5m,
    cache_write_1h, cache_read, web_searches, amount, amount_input, amount_output, amount_cache,
    amount_thinking, requests, completed, failed, cut, overrun
  from closed_months
  where month = $1::date and account_id > $2 and account_id <= $3
) c using (account_id, "family", key_id, model)
where s is distinct from c`,
  (p) => [p.month, p.after, p.upto],
  (v) => ({ differences: v[0] }) as never,
  "",
);

export type InsertClosingRow = { month: string; charges: bigint; amountMicro: bigint; sha256: Buffer; form: number; closedAt: Date };
/**
 * Closes a month whose sums are stored. Returns what is stored.
 * `sha256`: of its lines
 * `form`: of these
 */
export const insertClosing: One<{ month: string; sha256: Buffer; form: number }, InsertClosingRow> = one(
  "history/insert-closing",
  `-- history/insert-closing
insert into month_closings (month, charges, amount, sha256, form)
select $1::date, coalesce(sum(requests), 0)::bigint, coalesce(sum(amount), 0)::bigint, $2,
  $3
from closed_months
where month = $1::date
returning month, charges, amount as amount_micro, sha256, form, closed_at`,
  (p) => [p.month, p.sha256, p.form],
  (v) => ({ month: v[0], charges: v[1], amountMicro: v[2], sha256: v[3], form: v[4], closedAt: v[5] }) as never,
  "",
);

/**
 * Records a verified export of a month. Changes no row: the charges were removed before.
 * `sha256`: of its lines
 */
export const putArchive: Run<{ month: string; sha256: Buffer; place: string }> = run(
  "history/put-archive",
  `-- history/put-archive
insert into month_archives (month, sha256, place, verified_at)
values ($1::date, $2, $3, now())
on conflict (month) do update
set sha256 = excluded.sha256, place = excluded.place, verified_at = excluded.verified_at
where month_archives.dropped_at is null`,
  (p) => [p.month, p.sha256, p.place],
);

export type FindClosingRow = { month: string; charges: bigint; amountMicro: bigint; sha256: Buffer; form: number; closedAt: Date; isDropped: boolean };
/**
 * The closing of a month, and whether its charges were removed. No row: it is open.
 */
export const findClosing: Optional<{ month: string }, FindClosingRow> = optional(
  "history/find-closing",
  `-- history/find-closing
select c.month as month, c.charges as charges, c.amount as amount_micro,
  c.sha256 as sha256, c.form as form, c.closed_at as closed_at,
  a.dropped_at is not null as is_dropped
from month_closings c
left join month_archives a on a.month = c.month
where c.month = $1::date`,
  (p) => [p.month],
  (v) => ({ month: v[0], charges: v[1], amountMicro: v[2], sha256: v[3], form: v[4], closedAt: v[5], isDropped: v[6] }) as never,
  "",
);

export type FindUnsentRow = { unsent: number };
/**
 * Returns a row if a month has charges after the last one that is in a sink.
 */
export const findUnsent: Optional<{ month: string; settledAt: Date | string; requestId: string; accountId: string }, FindUnsentRow> = optional(
  "history/find-unsent",
  `-- history/find-unsent
select 1 as unsent
from charges c
where c.month = $1::date and c.amount >= 0
  and (c.settled_at, c.request_id, c.account_id)
    > ($2::timestamptz, $3, $4)
order by c.settled_at, c.request_id
limit 1`,
  (p) => [p.month, p.settledAt, p.requestId, p.accountId],
  (v) => ({ unsent: v[0] }) as never,
  "",
);

export type LockSalesRow = { settledAt: string; requestId: string; accountId: string; isEmptying: boolean };
/**
 * How far the charges are in the sums of sales, which change no more until the end of the
 * transaction. They lack a month that they are being removed from.
 */
export const lockSales: One<undefined, LockSalesRow> = one(
  "history/lock-sales",
  `-- history/lock-sales
select settled_at::text as settled_at, request_id, account_id, is_emptying
from sales_progress
for update`,
  () => [],
  (v) => ({ settledAt: v[0], requestId: v[1], accountId: v[2], isEmptying: v[3] }) as never,
  "",
);

export type ReadClosingStateRow = { currentMonth: string; lastClosed: string | null; holds: number; oldest: Date | null; hasDays: boolean };
/**
 * What decides whether a month can be closed: the current month, the last closed one, the holds of
 * this month and earlier ones, and whether its days are written.
 */
export const readClosingState: One<{ month: string }, ReadClosingStateRow> = one(
  "history/read-closing-state",
  `-- history/read-closing-state
select date_trunc('month', now() at time zone 'utc')::date as current_month,
  (select max(month) from month_closings) as last_closed,
  h.holds as holds, h.oldest as oldest,
  least(g.closed_to, g.tags_to) >= ($1::date + interval '1 month')::date as has_days
from usage_progress g
cross join (
  select count(*)::integer as holds, min(admitted_at) as oldest
  from holds
  where month <= $1::date
) h`,
  (p) => [p.month],
  (v) => ({ currentMonth: v[0], lastClosed: v[1], holds: v[2], oldest: v[3], hasDays: v[4] }) as never,
  "lastClosed oldest",
);

export type ReadProgressRow = { blocks: number; charges: bigint; hasForm: boolean; past: string; settledAt: string | null; requestId: string | null; accountId: string | null };
/**
 * How far the charges of a month are read for its closing, whether their lines have a form, and a
 * time in the past. Its place is null if nothing is read.
 */
export const readProgress: One<{ hours: number; form: number; month: string }, ReadProgressRow> = one(
  "history/read-progress",
  `-- history/read-progress
select b.blocks as blocks, b.charges as charges, b.has_form as has_form,
  (now() - $1::integer * interval '1 hour')::text as past,
  l.settled_at::text as settled_at, l.request_id as request_id, l.account_id as account_id
from (
  select count(*)::integer as blocks, coalesce(sum(charges), 0)::bigint as charges,
    coalesce(bool_and(form = $2::integer), true) as has_form
  from closing_blocks
  where month = $3::date
) b
left join closing_blocks l on l.month = $3::date and l.number = b.blocks`,
  (p) => [p.hours, p.form, p.month],
  (v) => ({ blocks: v[0], charges: v[1], hasForm: v[2], past: v[3], settledAt: v[4], requestId: v[5], accountId: v[6] }) as never,
  "settledAt requestId accountId",
);

export type DigestBlockRow = { charges: number; sha256: Buffer | null; settledAt: string | null; requestId: string | null; accountId: string | null };
/**
 * The digest of the lines of the next charges of a month, in the order of their settlement, and the
 * last of these charges. Without charges, of nothing.
 * `settledAt`: after this one, as the request and the account
 * `before`: settled before this time
 */
export const digestBlock: One<{ month: string; settledAt: Date | string; requestId: string; accountId: string; before: Date | string; rows: bigint | number }, DigestBlockRow> = one(
  "history/digest-block",
  `-- history/digest-block
select count(*)::integer as charges,
  sha256(convert_to(
    string_agg(line, E'\\n' order by settled_at, request_id, account_id) || E'\\n', 'UTF8'))
    as sha256,
  max(settled_at)::text as settled_at,
  (array_agg(request_id order by settled_at, request_id, account_id))[count(*)::integer]
    as request_id,
  (array_agg(account_id order by settled_at, request_id, account_id))[count(*)::integer]
    as account_id
from (
  select c.settled_at, c.request_id, c.account_id, c.line
  from charge_lines_1 c
  where c.month = $1::date
    and (c.settled_at, c.request_id, c.account_id)
      > ($2::timestamptz, $3, $4)
    and c.settled_at < $5::timestamptz
  order by c.settled_at, c.request_id, c.account_id
  limit $6
) block`,
  (p) => [p.month, p.settledAt, p.requestId, p.accountId, p.before, p.rows],
  (v) => ({ charges: v[0], sha256: v[1], settledAt: v[2], requestId: v[3], accountId: v[4] }) as never,
  "sha256 settledAt requestId accountId",
);

export type ReadLinesRow = { charges: number; lines: string | null; settledAt: string | null; requestId: string | null; accountId: string | null };
/**
 * The lines of the next charges of a month, in the order of their settlement, and the last of these
 * charges. Without charges, of nothing.
 * `settledAt`: after this one, as the request and the account
 */
export const readLines: One<{ month: string; settledAt: Date | string; requestId: string; accountId: string; rows: bigint | number }, ReadLinesRow> = one(
  "history/read-lines",
  `-- history/read-lines
select count(*)::integer as charges,
  string_agg(line, E'\\n' order by settled_at, request_id, account_id) || E'\\n' as lines,
  max(settled_at)::text as settled_at,
  (array_agg(request_id order by settled_at, request_id, account_id))[count(*)::integer]
    as request_id,
  (array_agg(account_id order by settled_at, request_id, account_id))[count(*)::integer]
    as account_id
from (
  select c.settled_at, c.request_id, c.account_id, c.line
  from charge_lines_1 c
  where c.month = $1::date
    and (c.settled_at, c.request_id, c.account_id)
      > ($2::timestamptz, $3, $4)
  order by c.settled_at, c.request_id, c.account_id
  limit $5
) page`,
  (p) => [p.month, p.settledAt, p.requestId, p.accountId, p.rows],
  (v) => ({ charges: v[0], lines: v[1], settledAt: v[2], requestId: v[3], accountId: v[4] }) as never,
  "lines settledAt requestId accountId",
);

export type CheckSumsRow = { charges: bigint; broken: bigint };
/**
 * How many charges of a month are summed up, and how many of them break a rule of the ledger.
 */
export const checkSums: One<{ month: string }, CheckSumsRow> = one(
  "history/check-sums",
  `-- history/check-sums
select coalesce(sum(requests), 0)::bigint as charges,
  coalesce(sum(broken), 0)::bigint as broken
from closing_sums
where month = $1::date`,
  (p) => [p.month],
  (v) => ({ charges: v[0], broken: v[1] }) as never,
  "",
);

export type CombineBlocksRow = { sha256: Buffer };
/**
 * The digest of a month from those of its blocks.
 */
export const combineBlocks: One<{ month: string }, CombineBlocksRow> = one(
  "history/combine-blocks",
  `-- history/combine-blocks
select sha256(coalesce(string_agg(sha256, '' order by number), '')) as sha256
from closing_blocks
where month = $1::date`,
  (p) => [p.month],
  (v) => ({ sha256: v[0] }) as never,
  "",
);

export type CompareClosingRow = { differences: number };
/**
 * Counts the accounts, keys and models whose sums of a month, as they were added up, differ from
 * those of its days: of the accounts after one and up to another.
 */
export const compareClosing: One<{ after: string; upto: string; month: string }, CompareClosingRow> = one(
  "history/compare-closing",
  `-- history/compare-closing
select count(*)::integer as differences
from (
  select a.account_id, key_id, model, sum(input) as input, sum(output) as output,
    sum(thinking) as thinking, sum(cache_write_5m) as cache_write_5m,
    sum(cache_write_1h) as cache_write_1h, sum(cache_read) as cache_read,
    sum(web_searches) as web_searches, sum(amount) as amount,
    sum(amount_input) as amount_input, sum(amount_output) as amount_output,
    sum(amount_cache) as amount_cache, sum(amount_thinking) as amount_thinking,
    sum(requests) as requests, sum(completed) as completed, sum(failed) as failed, sum(cut) as cut
  from (
    select account_id from accounts where account_id > $1 and account_id <= $2
    union
    select account_id
    from closing_sums
    where month = $3::date and account_id > $1 and account_id <= $2
  ) a
  cross join lateral (
    select *
    from usage_daily
    where account_id = a.account_id and day >= $3::date
      and day < ($3::date + interval '1 month')::date
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
  where month = $3::date and account_id > $1 and account_id <= $2
  group by account_id, key_id, model
) c using (account_id, key_id, model)
where (d.input, d.output, d.thinking, d.cache_write_5m, d.cache_write_1h, d.cache_read,
    d.web_searches, d.amount, d.amount_input, d.amount_output, d.amount_cache, d.amount_thinking,
    d.requests, d.completed, d.failed, d.cut)
  is distinct from (c.input, c.output, c.thinking, c.cache_write_5m, c.cache_write_1h,
    c.cache_read, c.web_searches, c.amount, c.amount_input, c.amount_output, c.amount_cache,
    c.amount_thinking, c.requests, c.completed, c.failed, c.cut)`,
  (p) => [p.after, p.upto, p.month],
  (v) => ({ differences: v[0] }) as never,
  "",
);

export type ListClosingsRow = { month: string | null; isExported: boolean; isDropped: boolean; currentMonth: string };
/**
 * The closed months, oldest first, what became of their charges, and the current UTC month. One row
 * without a month if none is closed.
 */
export const listClosings: Many<undefined, ListClosingsRow> = many(
  "history/list-closings",
  `-- history/list-closings
select c.month as month, coalesce(a.sha256 = c.sha256, false) as is_exported,
  a.dropped_at is not null as is_dropped,
  date_trunc('month', now() at time zone 'utc')::date as current_month
from (select 1) as always
left join month_closings c on true
left join month_archives a on a.month = c.month
order by c.month`,
  () => [],
  (v) => ({ month: v[0], isExported: v[1], isDropped: v[2], currentMonth: v[3] }) as never,
  "month",
);

export type ListTimesRow = { settledAt: string };
/**
 * Times that divide the charges of a month into parts that were read, in their order.
 * `blocks`: of a part
 */
export const listTimes: Many<{ month: string; blocks: number }, ListTimesRow> = many(
  "history/list-times",
  `-- history/list-times
select settled_at::text as settled_at
from closing_blocks
where month = $1::date and number % $2::integer = 0
order by number`,
  (p) => [p.month, p.blocks],
  (v) => ({ settledAt: v[0] }) as never,
  "",
);

/**
 * Records that the charges of a month are removed, if a verified export of them exists. Changes no
 * row: it does not, or they were removed before.
 */
export const markDropped: Run<{ month: string }> = run(
  "history/mark-dropped",
  `-- history/mark-dropped
update month_archives
set dropped_at = now()
where month = $1::date and dropped_at is null
  and sha256 = (select sha256 from month_closings where month = $1::date)`,
  (p) => [p.month],
);

/**
 * Removes the digests of the charges of a month that were read for its closing.
 */
export const removeBlocks: Run<{ month: string }> = run(
  "history/remove-blocks",
  `-- history/remove-blocks
delete from closing_blocks
where month = $1::date`,
  (p) => [p.month],
);

/**
 * Removes what was added up by persons and management keys for the closing of a month, unless it
 * has blocks or is closed.
 */
export const removeBudgets: Run<{ month: string }> = run(
  "history/remove-budgets",
  `-- history/remove-budgets
delete from closed_budgets
where month = $1::date
  and not exists (select from closing_blocks where month = $1::date)
  and not exists (select from month_closings where month = $1::date)`,
  (p) => [p.month],
);

/**
 * Removes some of the sums that were added up for the closing of a month, unless it has blocks, and
 * of those of closed months.
 */
export const removeSums: Run<{ month: string; sums: bigint | number }> = run(
  "history/remove-sums",
  `-- history/remove-sums
delete from closing_sums
where ctid = any (array (
  select ctid
  from closing_sums
  where month = $1::date
      and not exists (select from closing_blocks where month = $1::date)
    or month in (select month from month_closings)
  limit $2))`,
  (p) => [p.month, p.sums],
);

// sinks.sql

/**
 * Adds a sink, which has no charge yet, unless it is known.
 */
export const addCursor: Run<{ sink: string }> = run(
  "history/add-cursor",
  `-- history/add-cursor
insert into sink_cursors (sink)
values ($1)
on conflict (sink) do nothing`,
  (p) => [p.sink],
);

export type ReadCursorRow = { settledAt: string; requestId: string; accountId: string; file: string; bytes: bigint };
/**
 * How far the charges are in a sink. No row: it is not known.
 */
export const readCursor: Optional<{ sink: string }, ReadCursorRow> = optional(
  "history/read-cursor",
  `-- history/read-cursor
select settled_at::text as settled_at, request_id, account_id, file, bytes
from sink_cursors
where sink = $1`,
  (p) => [p.sink],
  (v) => ({ settledAt: v[0], requestId: v[1], accountId: v[2], file: v[3], bytes: v[4] }) as never,
  "",
);

export type ReadLagRow = { seconds: number };
/**
 * The seconds since the first charge after another was settled. No row: there is none.
 */
export const readLag: Optional<{ settledAt: Date | string; requestId: string; accountId: string }, ReadLagRow> = optional(
  "history/read-lag",
  `-- history/read-lag
select extract(epoch from now() - c.settled_at)::float8 as seconds
from charges c
where c.amount >= 0
  and (c.settled_at, c.request_id, c.account_id)
    > ($1::timestamptz, $2, $3)
order by c.settled_at, c.request_id
limit 1`,
  (p) => [p.settledAt, p.requestId, p.accountId],
  (v) => ({ seconds: v[0] }) as never,
  "",
);

export type ReadSettledLinesRow = { day: string; charges: number; lines: string; settledAt: string; requestId: string; accountId: string };
/**
 * The lines of the next charges of all accounts that were settled some time before another, in the
 * order of their settlement: one row for each UTC day, with the last of its charges.
 * `settledAt`: after this one, as the request and the account
 * `marginMs`: so long before `until`
 */
export const readSettledLines: Many<{ settledAt: Date | string; requestId: string; accountId: string; until: Date | string; marginMs: number; rows: bigint | number }, ReadSettledLinesRow> = many(
  "history/read-settled-lines",
  `-- history/read-settled-lines
select (settled_at at time zone 'utc')::date as day, count(*)::integer as charges,
  string_agg(line, E'\\n' order by settled_at, request_id, account_id) || E'\\n' as lines,
  max(settled_at)::text as settled_at,
  (array_agg(request_id order by settled_at, request_id, account_id))[count(*)::integer]
    as request_id,
  (array_agg(account_id order by settled_at, request_id, account_id))[count(*)::integer]
    as account_id
from (
  select c.settled_at, c.request_id, c.account_id, c.line
  from charge_lines_1 c
  where (c.settled_at, c.request_id, c.account_id)
      > ($1::timestamptz, $2, $3)
    and c.settled_at < $4::timestamptz - $5::integer * interval '1 millisecond'
  order by c.settled_at, c.request_id, c.account_id
  limit $6
) page
group by 1
order by 1`,
  (p) => [p.settledAt, p.requestId, p.accountId, p.until, p.marginMs, p.rows],
  (v) => ({ day: v[0], charges: v[1], lines: v[2], settledAt: v[3], requestId: v[4], accountId: v[5] }) as never,
  "",
);

/**
 * Records that charges are in a sink, up to the one that is last. Changes no row: another process
 * has moved the cursor meanwhile.
 * `bytes`: of the file
 */
export const moveCursor: Run<{ lastSettledAt: Date | string; lastRequestId: string; lastAccountId: string; file: string; bytes: bigint | number; sink: string; settledAt: Date | string; requestId: string; accountId: string }> = run(
  "history/move-cursor",
  `-- history/move-cursor
update sink_cursors
set settled_at = $1::timestamptz, request_id = $2,
  account_id = $3, file = $4, bytes = $5, moved_at = now()
where sink = $6
  and (settled_at, request_id, account_id) = ($7::timestamptz, $8, $9)`,
  (p) => [p.lastSettledAt, p.lastRequestId, p.lastAccountId, p.file, p.bytes, p.sink, p.settledAt, p.requestId, p.accountId],
);
