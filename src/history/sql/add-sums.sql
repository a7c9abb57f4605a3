-- Adds up charges of a month by account, family, key and model, and counts those that break a rule
-- of the ledger, as verify-ledger knows them.
-- $1 month  $2, $3, $4 after this settled_at, request_id and account_id  $5, $6, $7 up to these
insert into closing_sums (account_id, month, "family", key_id, model, each_charged(#), overrun,
  broken)
select account_id, $1::date, "family", key_id, model, each_charged(sum(#)), sum(overrun),
  sum(broken)
from (
  select c.account_id, c."family", c.key_id, c.model, charged_of(c, p), c.overrun,
    (c.amount is distinct from least(c.hold, cost.micro)
      or c.amount + c.overrun is distinct from
        cost.micro + c.output_over * p.output + c.thinking_over * p.thinking
      or c.output::bigint + c.thinking > c.granted_output
      or c.output_over::bigint + c.thinking_over > 0
        and c.output::bigint + c.thinking < c.granted_output)::int as broken
  from charges c
  left join price_versions p using (price_version)
  cross join lateral (
    select c.input * p.input + c.output * p.output + c.thinking * p.thinking
      + c.cache_write_5m * p.cache_write_5m + c.cache_write_1h * p.cache_write_1h
      + c.cache_read * p.cache_read as micro
  ) cost
  where c.month = $1::date and c.amount >= 0
    and (c.settled_at, c.request_id, c.account_id) > ($2::timestamptz, $3, $4)
    and (c.settled_at, c.request_id, c.account_id) <= ($5::timestamptz, $6, $7)
) charged
group by account_id, "family", key_id, model
on conflict (account_id, month, "family", key_id, model) do update
set (each_charged(#)) = row (each_charged(closing_sums.# + excluded.#)),
  overrun = closing_sums.overrun + excluded.overrun,
  broken = closing_sums.broken + excluded.broken;
