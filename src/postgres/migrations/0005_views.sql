-- Views of charges. They have the condition of the indexes of charges, so that these serve them.

-- A charge with its cost at its price, and what it adds to the sums of roll-ups. A hold that is too
-- small covers the input first, then the cache, then thinking, then output.
create view charge_sums as
select c.*,
  -- Of the charged tokens, whatever the hold, and of those beyond the grant.
  upto.output as cost,
  c.output_over * p.output + c.thinking_over * p.thinking as cost_over,
  least(upto.input, c.hold) as amount_input,
  c.amount - least(upto.thinking, c.hold) as amount_output,
  least(upto.cache, c.hold) - least(upto.input, c.hold) as amount_cache,
  least(upto.thinking, c.hold) - least(upto.cache, c.hold) as amount_thinking,
  1 as requests,
  (c.outcome = 'completed')::int as completed,
  (c.outcome in ('provider_failed', 'provider_broke', 'gateway_failed', 'reaped',
    'input_above_hold'))::int as failed,
  (c.outcome in ('client_left_before_acceptance', 'client_left_before_content', 'client_left',
    'revoked', 'time_limit'))::int as cut
from charges c
left join price_versions p using (price_version)
cross join lateral (
  select c.input * p.input as input,
    c.cache_write_5m * p.cache_write_5m + c.cache_write_1h * p.cache_write_1h
      + c.cache_read * p.cache_read as cache,
    c.thinking * p.thinking as thinking, c.output * p.output as output
) part
cross join lateral (
  select part.input, part.input + part.cache as cache,
    part.input + part.cache + part.thinking as thinking,
    part.input + part.cache + part.thinking + part.output as output
) upto
where c.amount >= 0;
