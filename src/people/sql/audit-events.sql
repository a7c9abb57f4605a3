-- timeout_ms=5000

-- name: InsertAuditEvent :run
-- Stores an administrative act.
-- :account_id  empty: it concerns no account
insert into audit_events (event_id, at, actor, account_id, method, outcome, facts, address)
values (:event_id, :at, :actor, :account_id, :method, :outcome, :facts, :address);

-- name: CountRefusal :one
-- Counts a refused call of an hour, for the event of those that leave none. Returns it with the
-- number of the call.
-- :event_id  of that event, if this is the first of them
-- :kept  so many leave an event each
insert into audit_refusals as r (actor, hour, refused, event_id)
values (:actor, date_trunc('hour', now()), 1, :event_id)
on conflict (actor, hour) do update
   set refused = r.refused + 1,
       event_id = case when r.refused = :kept::integer then excluded.event_id else r.event_id end
returning refused, event_id;

-- name: CountMore :run
-- Notes how many refused calls an event stands for.
update audit_events set facts = jsonb_build_object('more', :more::text) where event_id = :event_id;

-- name: RemoveRefusals :run
-- Deletes counts of hours that are over.
delete from audit_refusals where hour < now() - interval '2 hours';

-- name: RemoveRefused :run
-- Deletes some of the events of refused calls of long ago.
-- :days  since the call
with old as (
  select event_id
    from audit_events
   where outcome <> 'ok' and at < now() - :days::integer * interval '1 day'
   order by at
   limit :rows
)
delete from audit_events where event_id in (select event_id from old);

-- name: ListAuditEvents :many
-- Administrative acts, newest first.
-- :account_id?  null: of all accounts and of none
-- :actor?  null: of everybody
-- :method?  null: all
-- :key_id?  null: all; the acts on one key, or on several of which it is one
-- :hidden  methods whose acts are left out
-- :from?
-- :to?
-- :before?  only those before this time; null: from the newest
-- :before_id?  or at this time, before this event
select event_id, at, actor, account_id, method, outcome, facts, address
  from audit_events
 where (:account_id::text is null or account_id = :account_id)
   and (:actor::text is null or actor = :actor)
   and (:method::text is null or method = :method)
   and (:key_id::text is null or facts ->> 'keyId' = :key_id
        or :key_id = any(string_to_array(facts ->> 'keyIds', ' ')))
   and method <> all(:hidden::text[])
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
