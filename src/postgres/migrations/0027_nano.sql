-- Prices of tokens are in nano-credits, thousandths of a micro-credit, so that a token may cost
-- less than one and a discount has no steps. The price of a web search stays in micro-credits. A
-- charge is the sum over its tokens, rounded up once to a micro-credit: that of each charge so far
-- was whole, and stays as it was. An older process would charge a thousand times as much, so none
-- may run beside it.
alter table price_versions disable trigger price_versions_append_only;
update price_versions
set input = input * 1000, output = output * 1000, thinking = thinking * 1000,
  cache_write_5m = cache_write_5m * 1000, cache_write_1h = cache_write_1h * 1000,
  cache_read = cache_read * 1000;
alter table price_versions enable trigger price_versions_append_only;

-- The parts of a charge are rounded down; the rest, less than five micro-credits, is in the part of
-- the output. `costsUpTo` of src/base/cost.ts computes the same.
drop view charge_sums;
create view charge_sums as
select c.*,
  -- Of the charged usage, whatever the hold, and of the tokens beyond the grant.
  upto.output as cost,
  (c.output_over * p.output + c.thinking_over * p.thinking + 999) / 1000 as cost_over,
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
    c.thinking * p.thinking as thinking, c.output * p.output as output,
    c.web_searches * p.web_search as searches
) part
cross join lateral (
  select part.input / 1000 + part.searches as input,
    part.input / 1000 + part.searches + part.cache / 1000 as cache,
    part.input / 1000 + part.searches + part.cache / 1000 + part.thinking / 1000 as thinking,
    (part.input + part.cache + part.thinking + part.output + 999) / 1000 + part.searches as output
) upto
where c.amount >= 0;
