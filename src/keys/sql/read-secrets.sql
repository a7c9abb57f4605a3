-- keys/sql/read-secrets.sql Secrets of these keys, newest first: all good ones, and the newest
-- twenty whatever became of them.
-- $1 key_ids
select key_id, secret_id, shown, created_at, expires_at, revoked_at
  from (select *, row_number() over (partition by key_id order by created_at desc, secret_id desc) as place
          from key_secrets
         where key_id = any($1::text[])) ranked
 where place <= 20 or (revoked_at is null and (expires_at is null or expires_at > now()))
 order by key_id, place;
