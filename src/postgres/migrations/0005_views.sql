-- compatible_from: 4
-- Views of charges. They have the condition of the indexes of charges, so that these serve them.

-- A charge as a line of JSON: for the digest of a closed month, for exports and for sinks. One form
-- for all three, so that a line of one can be looked up in another. Times are UTC and as precise as
-- stored; no setting of the session changes a line. Of its texts only the model may need escapes.
--
-- The number is that of the form: `lineForm` of src/history/digest.ts. Another form is a view of its
-- own, for months that are closed later; the digests of earlier months need this one.
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
