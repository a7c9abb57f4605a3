-- Finds the pool that pays for a key. No row: no such key.
-- $1 key_id
select account_id, "family" from keys where key_id = $1;
