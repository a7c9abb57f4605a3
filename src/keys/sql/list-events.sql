-- keys/sql/list-events.sql
-- The keys that the feed names since ten seconds before a time, and that were created or paused
-- since then, with the hint of their first secret.
-- $1 time  $2 rows at most
select k.key_id, k.account_id, k.name, k.created_at, k.created_by,
       case when k.paused then k.paused_at end as paused_at,
       (select s.shown from key_secrets s
         where s.key_id = k.key_id order by s.secret_id limit 1) as shown
  from keys k
 where k.key_id in (select c.key_id from key_changes c
                     where c.changed_at > $1::timestamptz - interval '10 seconds')
   and (k.created_at > $1::timestamptz - interval '10 seconds'
        or k.paused_at > $1::timestamptz - interval '10 seconds')
 order by k.key_id
 limit $2;
