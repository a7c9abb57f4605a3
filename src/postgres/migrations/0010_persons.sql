-- compatible_from: 9
-- Who let a request be charged, what the machine gave away alone, and bounds of mails.

-- As audit events name actors, such as `token:billing-bot`. Null: the gateway.
alter table holds add made_by text;
alter table charges add made_by text;

-- The same lines as before, but for charges that have `made_by`, which had none then.
create or replace view charge_lines_1 as
select c.account_id, c.request_id, c.month, c.settled_at,
  format('{"request_id":"%s","account_id":"%s","family":"%s","key_id":"%s","outcome":"%s",'
      '"basis":"%s","price_version":"%s","secret_id":%s,"model":%s,"admitted_at":%sZ",'
      '"settled_at":%sZ","attempts":%s,"tags":%s%s,"hold":%s,"amount":%s,"overrun":%s,"input":%s,'
      '"output":%s,"thinking":%s,"cache_write_5m":%s,"cache_write_1h":%s,"cache_read":%s,'
      '"granted_output":%s,"output_over":%s,"thinking_over":%s}',
    c.request_id, c.account_id, c."family", c.key_id, c.outcome, c.basis, c.price_version,
    coalesce('"' || c.secret_id || '"', 'null'), to_json(c.model)::text,
    rtrim(to_json(c.admitted_at at time zone 'utc')::text, '"'),
    rtrim(to_json(c.settled_at at time zone 'utc')::text, '"'), c.attempts::text,
    coalesce(c.tags::text, '{}'), ',"made_by":' || to_json(c.made_by)::text, c.hold, c.amount,
    c.overrun, c.input, c.output, c.thinking, c.cache_write_5m, c.cache_write_1h, c.cache_read,
    c.granted_output, c.output_over, c.thinking_over) as line
from charges c
where c.amount >= 0;

-- Bypassed: the machine did what a person could not alone. Nothing waits.
alter table approvals drop constraint approvals_state_check;
alter table approvals add constraint approvals_state_check
  check (state in ('pending', 'approved', 'rejected', 'replaced', 'bypassed'));
create index approvals_bypassed on approvals (requested_at) where state = 'bypassed';

-- For mails, which are counted by account and person. `next_at` of a sent one is when it was sent.
create index alert_deliveries_mailed on alert_deliveries (account_id, next_at)
  where channel <> 'webhook' and state in ('sent', 'waiting');
