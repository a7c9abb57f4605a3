-- keys/sql/pause-key.sql
-- Pauses a key, or resumes it. Changes nothing if it is so already. No row: the key is revoked or
-- does not exist.
-- $1 key_id  $2 change_id  $3 paused
with found as (
  select key_id, paused from keys where key_id = $1 and status = 'active' for no key update
), changed as (
  update keys set paused = $3::boolean, paused_at = case when $3 then now() else paused_at end
   where key_id in (select key_id from found where paused <> $3::boolean)
  returning key_id
), announced as (
  insert into key_changes (change_id, key_id)
  select $2, key_id from changed
)
select key_id from found;
