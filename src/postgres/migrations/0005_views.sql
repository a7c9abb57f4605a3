-- compatible_from: 4
-- Views of charges. They have the condition of the indexes of charges, so that these serve them.

-- A charge as a line of JSON: for the digest of a closed month, for exports and for sinks. One form
-- for all three, so that a line of one can be looked up in another. Times are UTC and as precise as
-- stored; no setting of the session changes a line. Of its texts only the model may need escapes.
--
-- The number is that of the form: `lineForm` of src/history/digest.ts. Another form is a view of
-- its own, for months that are closed later; the digests of earlier months need this one.
--
-- The values of one type stand together: `format` looks up how to write a type whenever it changes.
create view charge_lines_1 as
select c.account_id, c.request_id, c.month, c.settled_at,
  format('{"request_id":"%s","account_id":"%s","family":"%s","key_id":"%s","outcome":"%s",'
      '"basis":"%s","price_version":"%s","secret_id":%s,"model":%s,"admitted_at":%sZ",'
      '"settled_at":%sZ","attempts":%s,"tags":%s,"hold":%s,"amount":%s,"overrun":%s,"input":%s,'
      '"output":%s,"thinking":%s,"cache_write_5m":%s,"cache_write_1h":%s,"cache_read":%s,'
      '"granted_output":%s,"output_over":%s,"thinking_over":%s}',
    c.request_id, c.account_id, c."family", c.key_id, c.outcome, c.basis, c.price_version,
    coalesce('"' || c.secret_id || '"', 'null'), to_json(c.model)::text,
    rtrim(to_json(c.admitted_at at time zone 'utc')::text, '"'),
    rtrim(to_json(c.settled_at at time zone 'utc')::text, '"'), c.attempts::text,
    coalesce(c.tags::text, '{}'), c.hold, c.amount, c.overrun, c.input, c.output, c.thinking,
    c.cache_write_5m, c.cache_write_1h, c.cache_read, c.granted_output, c.output_over,
    c.thinking_over) as line
from charges c
where c.amount >= 0;

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
