-- name: InsertReplay :optional
-- Notes what a call creates under an idempotency key, in place of one that has expired. Waits for a
-- call with the same key that is in progress. No row: an earlier call has the key.
-- :sealed?  null: the answer has no secret, or none may be kept
insert into replays
  (account_id, actor, key_sha256, method, request_sha256, made_id, sealed, ends_at)
values (:account_id, :actor, :key_sha256, :method, :request_sha256, :made_id, :sealed,
  now() + interval '1 day')
on conflict (account_id, actor, key_sha256) do update
set method = excluded.method, request_sha256 = excluded.request_sha256,
  made_id = excluded.made_id, sealed = excluded.sealed, ends_at = excluded.ends_at
where replays.ends_at <= now()
returning made_id;

-- name: FindReplay :optional
-- Finds what an earlier call created under an idempotency key.
select method, request_sha256, made_id, sealed
from replays
where account_id = :account_id and actor = :actor and key_sha256 = :key_sha256;

-- name: NameReplay :run
-- Notes another id of what a call created.
update replays
set made_id = :made_id
where account_id = :account_id and actor = :actor and key_sha256 = :key_sha256;

-- name: RemoveReplays :run
-- Removes what is older than a day.
delete from replays where ends_at <= now();
