-- Adds holds to the months of keys whose pools are locked. A key's first hold of a month makes its row.
-- $1 key_ids  $2 months  $3 held
insert into key_months (key_id, month, held)
select * from unnest($1::text[], $2::date[], $3::bigint[])
on conflict (key_id, month) do update
set held = key_months.held + excluded.held;
