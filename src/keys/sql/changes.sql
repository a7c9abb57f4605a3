-- timeout_ms=5000

-- name: AnnounceAccount :many
-- Tells every process that the keys of an account changed, because the account did. Returns them,
-- and its management keys.
-- :change_id  to which each key adds its own
insert into key_changes (change_id, key_id)
select :change_id || '_' || k.key_id, k.key_id
  from (select key_id
          from keys
         where account_id = :account_id and status = 'active'
        union all
        select management_key_id
          from management_keys
         where account_id = :account_id and revoked_at is null) as k
returning key_id;

-- name: AnnounceChange :run
-- Tells every process that something beside keys changed that their requests depend on.
insert into key_changes (change_id, key_id) values (:change_id, :changed_id);

-- name: AnnounceManaged :run
-- Tells every process that the keys of an account changed that somebody manages, because he did.
-- :change_id  to which each key adds its own
insert into key_changes (change_id, key_id)
select :change_id || '_' || key_id, key_id
  from keys
 where account_id = :account_id and managed_by = :managed_by and status = 'active';

-- name: ReadChanges :many
-- Changes of keys since ten seconds before a time, and the time of this read. One row without a
-- change if there is none. The ten seconds: transactions do not commit in the order of their times.
-- :since?  time of the previous read; null: now
select statement_timestamp() as "read_at!", c.change_id as "change_id?", c.key_id as "key_id?"
  from (select 1) as always
  left join key_changes c
    on c.changed_at
       > coalesce(:since::timestamptz, statement_timestamp()) - interval '10 seconds';

-- name: ListEvents :many
-- The keys that the feed names since ten seconds before a time, and that were created, paused or
-- revoked since then, with the hint of their first secret. An account that is closed has no news.
select k.key_id, k.account_id, k.name, k.created_at, k.created_by, k.expires_at,
       (select b.total_limit from budgets b
         where b.account_id = k.account_id and b."family" = k."family"
           and b.payer = k.key_id) as "total_limit?",
       -- Of the management key that created it.
       (select m.name from management_keys m
         where k.created_by = 'mgmt:' || m.management_key_id) as "manager?",
       case when k.paused then k.paused_at end as "paused_at?", k.revoked_at,
       (select s.shown from key_secrets s
         where s.key_id = k.key_id order by s.secret_id limit 1) as "hint!"
  from keys k
  join accounts a on a.account_id = k.account_id and a.status <> 'closed'
 where k.key_id in (select c.key_id from key_changes c
                     where c.changed_at > :since::timestamptz - interval '10 seconds')
   and (k.created_at > :since::timestamptz - interval '10 seconds'
        or k.paused_at > :since::timestamptz - interval '10 seconds'
        or k.revoked_at > :since::timestamptz - interval '10 seconds')
 order by k.key_id
 limit :rows;

-- name: RemoveChanges :run
-- Deletes changes that every running process read long ago.
delete from key_changes where changed_at < now() - interval '1 day';
