-- Web searches are counted and priced beside the tokens. An older process would leave them out of
-- the sums of days, so none may run beside it.

-- Micro-credits each.
alter table price_versions add web_search bigint not null default 0 check (web_search >= 0);

alter table holds add web_searches integer not null default 0;
alter table charges add web_searches integer not null default 0 check (web_searches >= 0);
alter table usage_hourly add web_searches bigint not null default 0;
alter table usage_daily add web_searches bigint not null default 0;
alter table tags_daily add web_searches bigint not null default 0;
alter table closing_sums add web_searches bigint not null default 0;
alter table closed_months add web_searches bigint not null default 0;

-- The same lines as before, but for charges of web searches, of which there were none.
create or replace view charge_lines_1 as
select c.account_id, c.request_id, c.month, c.settled_at,
  format('{"request_id":"%s","account_id":"%s","family":"%s","key_id":"%s","outcome":"%s",'
      '"basis":"%s","price_version":"%s","secret_id":%s,"model":%s,"admitted_at":%sZ",'
      '"settled_at":%sZ","attempts":%s,"tags":%s%s,"hold":%s,"amount":%s,"overrun":%s,"input":%s,'
      '"output":%s,"thinking":%s,"cache_write_5m":%s,"cache_write_1h":%s,"cache_read":%s,'
      '"granted_output":%s,"output_over":%s,"thinking_over":%s%s}',
    c.request_id, c.account_id, c."family", c.key_id, c.outcome, c.basis, c.price_version,
    coalesce('"' || c.secret_id || '"', 'null'), to_json(c.model)::text,
    rtrim(to_json(c.admitted_at at time zone 'utc')::text, '"'),
    rtrim(to_json(c.settled_at at time zone 'utc')::text, '"'), c.attempts::text,
    coalesce(c.tags::text, '{}'), ',"made_by":' || to_json(c.made_by)::text, c.hold, c.amount,
    c.overrun, c.input, c.output, c.thinking, c.cache_write_5m, c.cache_write_1h, c.cache_read,
    c.granted_output, c.output_over, c.thinking_over,
    ',"web_searches":' || nullif(c.web_searches, 0)) as line
from charges c
where c.amount >= 0;

-- Web searches are in the part of the input.
drop view charge_sums;
create view charge_sums as
select c.*,
  -- Of the charged usage, whatever the hold, and of the tokens beyond the grant.
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
  select c.input * p.input + c.web_searches * p.web_search as input,
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
