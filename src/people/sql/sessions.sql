-- timeout_ms=5000

-- name: InsertSession :one
-- Begins a session of a person.
-- :strong_ms  how long its person needs no confirmation
-- :passkey_id?  the passkey that begins it
insert into sessions
  (digest, session_id, person_id, method, ends_at, strong_until, address, agent, passkey_id)
values (:digest, :session_id, :person_id, :method,
        now() + :lifetime_ms::float8 * interval '1 millisecond',
        now() + :strong_ms::float8 * interval '1 millisecond', :address, :agent, :passkey_id)
returning ends_at;

-- name: EndOldest :run
-- Ends the open sessions of a person, but for the newest.
-- :kept  so many stay open
update sessions set ended_at = now()
 where session_id in (select session_id from sessions
                       where person_id = :person_id and ended_at is null and ends_at > now()
                       order by made_at desc, session_id desc
                      offset :kept::integer);

-- name: FindSessions :many
-- The open sessions with these digests, their people and the accounts of the people, and records
-- their use, at most once a minute. No row: there is none, it ended, or the person is disabled.
-- :idle_ms_max  between two uses
-- =roles members.role
with open as (
  select digest from sessions
   where digest = any(:digests::bytea[]) and ended_at is null
     and ends_at > now() and used_at > now() - :idle_ms_max::float8 * interval '1 millisecond'
), touched as (
  update sessions set used_at = now()
   where digest in (select s.digest from sessions s join open o on o.digest = s.digest
                     where s.used_at < now() - interval '50 seconds'
                       for update of s skip locked)
)
select s.digest, s.session_id, s.person_id, s.method, s.strong_until, p.operator,
       (extract(epoch from (s.ends_at - now())) * 1000)::float8 as "ends_in_ms!",
       array(select m.account_id from members m
              where m.person_id = s.person_id order by m.account_id) as "account_ids!",
       array(select m.role from members m
              where m.person_id = s.person_id order by m.account_id) as "roles!"
  from sessions s
  join open o on o.digest = s.digest
  join people p on p.person_id = s.person_id
 where p.disabled_at is null;

-- name: FindProof :optional
-- How the person of a session proved last who he is. No row: the session has ended.
-- =proof sessions.method
select coalesce(confirmed_by, method) as "proof!"
  from sessions where session_id = :session_id and ended_at is null;

-- name: ListSessions :many
-- The open sessions of a person, newest first.
-- :idle_ms_max  between two uses
select session_id, made_at as created_at, used_at, ends_at, address, agent
  from sessions
 where person_id = :person_id and ended_at is null
   and ends_at > now() and used_at > now() - :idle_ms_max::float8 * interval '1 millisecond'
 order by made_at desc, session_id desc
 limit 1000;

-- name: ListSignIns :many
-- The sessions that began since ten seconds before a time, but for the first of each person, with
-- the addresses of his earlier ones that are kept, and his accounts. Oldest first.
select s.session_id, s.person_id, p.login as "login!", s.address, s.agent, s.made_at as at,
       array(select distinct e.address from sessions e
              where e.person_id = s.person_id and e.made_at < s.made_at) as "earlier!",
       array(select m.account_id from members m
              where m.person_id = s.person_id order by m.account_id) as "account_ids!"
  from sessions s
  join people p on p.person_id = s.person_id
 where s.made_at > :since::timestamptz - interval '10 seconds' and s.address <> ''
   and exists (select from sessions e
                where e.person_id = s.person_id and e.made_at < s.made_at)
 order by s.made_at
 limit :rows;

-- name: ConfirmSession :optional
-- Records that the person of an open session proved who he is. No row: the session ended.
-- :confirmed_by  how
-- :strong_ms  how long he needs no further confirmation
update sessions
   set strong_until = now() + :strong_ms::float8 * interval '1 millisecond',
       confirmed_by = :confirmed_by
 where session_id = :session_id and ended_at is null
returning strong_until;

-- name: EndSession :run
-- Ends an open session of a person. Changes no row: there is none.
update sessions set ended_at = now()
 where person_id = :person_id and session_id = :session_id and ended_at is null;

-- name: EndSessions :run
-- Ends the open sessions of a person.
-- :but_session_id?  stays open; null: none does
update sessions set ended_at = now()
 where person_id = :person_id and ended_at is null
   and session_id is distinct from :but_session_id::text;

-- name: EndSessionsOfPasskey :run
-- Ends the open sessions that a passkey began, but one.
-- :but_session_id  stays open
update sessions set ended_at = now()
 where person_id = :person_id and passkey_id = :passkey_id and session_id <> :but_session_id
   and ended_at is null;

-- name: DeleteSessions :run
-- Deletes the sessions of a person, with their addresses.
delete from sessions where person_id = :person_id;

-- name: RemoveSessions :run
-- Deletes some of the sessions that ended long ago. A session also ends when it is not used.
-- :days  since their end
-- :idle_ms_max  between two uses
with old as (
  select digest
    from sessions
   where made_at < now() - :days::integer * interval '1 day'
     and least(ended_at, ends_at, used_at + :idle_ms_max::float8 * interval '1 millisecond')
         < now() - :days::integer * interval '1 day'
   order by made_at
   limit :rows
)
delete from sessions where digest in (select digest from old);
