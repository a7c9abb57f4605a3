-- Adds up charges of a month by account, family, key and model, as verify-ledger does, and counts
-- those that break a rule of the ledger.
-- $1 closing_id  $2 month  $3, $4, $5 after this settled_at, request_id and account_id
-- $6, $7, $8 up to these
insert into closing_sums (closing_id, account_id, "family", key_id, model, each_charged(#), overrun,
  broken)
select $1, c.account_id, c."family", c.key_id, c.model, each_category(sum(c.#) as #),
  sum(c.amount) as amount,
  sum(least(upto.input, c.hold)) as amount_input,
  sum(c.amount - least(upto.thinking, c.hold)) as amount_output,
  sum(least(upto.cache, c.hold) - least(upto.input, c.hold)) as amount_cache,
  sum(least(upto.thinking, c.hold) - least(upto.cache, c.hold)) as amount_thinking,
  count(*) as requests,
  count(*) filter (where c.outcome = 'completed') as completed,
  count(*) filter (where c.outcome in ('provider_failed', 'provider_broke', 'gateway_failed',
    'reaped', 'input_above_hold')) as failed,
  count(*) filter (where c.outcome in ('client_left_before_acceptance',
    'client_left_before_content', 'client_left', 'revoked', 'time_limit')) as cut,
  sum(c.overrun) as overrun,
  count(*) filter (where
    c.amount is distinct from least(c.hold, upto.thinking + c.output * p.output)
    or c.amount + c.overrun is distinct from upto.thinking + c.output * p.output
      + c.output_over * p.output + c.thinking_over * p.thinking
    or c.output::bigint + c.thinking > c.granted_output
    or c.output_over::bigint + c.thinking_over > 0
      and c.output::bigint + c.thinking < c.granted_output) as broken
from charges c
left join price_versions p using (price_version)
cross join lateral (
  select c.input * p.input as input,
    c.cache_write_5m * p.cache_write_5m + c.cache_write_1h * p.cache_write_1h
      + c.cache_read * p.cache_read as cache,
    c.thinking * p.thinking as thinking
) cost
cross join lateral (
  select cost.input, cost.input + cost.cache as cache,
    cost.input + cost.cache + cost.thinking as thinking
) upto
where c.month = $2::date and c.amount >= 0
  and (c.settled_at, c.request_id, c.account_id) > ($3::timestamptz, $4, $5)
  and (c.settled_at, c.request_id, c.account_id) <= ($6::timestamptz, $7, $8)
group by 2, 3, 4, 5;
