-- Takes the next index of an account key.
-- $1 key_id
insert into deposit_keys as k (key_id, next_index) values ($1, 1)
on conflict (key_id) do update set next_index = k.next_index + 1
returning next_index - 1 as index;
