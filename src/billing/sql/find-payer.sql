-- The pool that pays for a key.
-- $1 key_id
select account_id, family from keys where key_id = $1;
