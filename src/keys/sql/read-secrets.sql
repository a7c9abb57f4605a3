-- keys/sql/read-secrets.sql
-- Secrets of these keys, newest first: all valid ones, and the newest twenty in any state.
-- $1 key_ids
select key_id, secret_id, shown, created_at, expires_at, revoked_at, last_used_at
  from (select *,
               row_number() over (
                 partition by key_id order by created_at desc, secret_id desc
               ) as rank
          from key_secrets
         where key_id = any($1::text[])) ranked
 where rank <= 20 or (revoked_at is null and (expires_at is null or expires_at > now()))
 order by key_id, rank;
