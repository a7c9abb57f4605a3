-- people/sql/remove-addresses.sql
-- Removes the addresses from some of the audit events of long ago.
-- $1 days since the act  $2 most rows
with old as (
  select event_id
    from audit_events
   where address <> '' and at < now() - $1::integer * interval '1 day'
   order by at
   limit $2
)
update audit_events set address = '' where event_id in (select event_id from old)
returning event_id;
