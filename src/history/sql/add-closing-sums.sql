-- Adds up charges of a month by account, family, key and model, and counts those that break a rule
-- of the ledger, as verify-ledger knows them.
-- $1 closing_id  $2 month  $3, $4, $5 after this settled_at, request_id and account_id
-- $6, $7, $8 up to these
insert into closing_sums (closing_id, account_id, "family", key_id, model, each_charged(#), overrun,
  broken)
select $1, account_id, "family", key_id, model, each_charged(sum(#)), sum(overrun), sum(broken)
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
  where c.month = $2::date and c.amount >= 0
    and (c.settled_at, c.request_id, c.account_id) > ($3::timestamptz, $4, $5)
    and (c.settled_at, c.request_id, c.account_id) <= ($6::timestamptz, $7, $8)
) charged
group by account_id, "family", key_id, model;
