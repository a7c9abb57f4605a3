-- timeout_ms=5000

-- name: InsertAuditEvent :run
-- Stores an administrative act.
-- :account_id  empty: it concerns no account
insert into audit_events (event_id, at, actor, account_id, method, outcome, facts, address)
values (:event_id, :at, :actor, :account_id, :method, :outcome, :facts, :address);

-- name: ListAuditEvents :many
-- Administrative acts, newest first.
-- :account_id?  null: of all accounts and of none
-- :actor?  null: of everybody
-- :method?  null: all
-- :from?
-- :to?
-- :before?  only those before this time; null: from the newest
-- :before_id?  or at this time, before this event
select event_id, at, actor, account_id, method, outcome, facts, address
  from audit_events
 where (:account_id::text is null or account_id = :account_id)
   and (:actor::text is null or actor = :actor)
   and (:method::text is null or method = :method)
   and (:from::timestamptz is null or at >= :from)
   and (:to::timestamptz is null or at < :to)
   and (:before::timestamptz is null or (at, event_id) < (:before, :before_id::text))
 order by at desc, event_id desc
 limit :rows;

-- name: RemoveAddresses :run
-- Removes the addresses from some of the audit events of long ago.
-- :days  since the act
with old as (
  select event_id
    from audit_events
   where address <> '' and at < now() - :days::integer * interval '1 day'
   order by at
   limit :rows
)
update audit_events set address = '' where event_id in (select event_id from old);
