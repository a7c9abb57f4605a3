-- A price may have steps by the length of the prompt: a version says of which prompts it is, and
-- which price longer ones have. A charge names the version of its own prompt. An older process
-- would charge every prompt the price of its hold, so none may run beside it.
alter table price_versions
  -- Of prompts of more tokens than this. Null: of the shortest, too.
  add prompt_over  integer check (prompt_over > 0),
  -- Up to this. Null: of the longest, too.
  add prompt_above integer check (prompt_above > coalesce(prompt_over, 0)),
  -- The price of longer prompts, a `Price` in JSON with the prices above it in turn.
  add above_price  jsonb check ((above_price is null) = (prompt_above is null)),
  -- What makes it another price than the plain one, in words; empty: nothing.
  add note         text not null default '';

-- As before, with the lengths of the prompts of which the price is.
drop view charge_sums;
create view charge_sums as
select c.*, p.prompt_over, p.prompt_above,
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
