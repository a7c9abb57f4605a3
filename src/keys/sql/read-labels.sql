-- keys/sql/read-labels.sql
-- The names of these keys of an account, and the hints of their newest secrets.
-- $1 account_id  $2 key_ids
select k.key_id, k.name, coalesce(s.shown, '') as hint
  from keys k
  left join lateral (
    select shown
      from key_secrets
     where key_id = k.key_id
     order by created_at desc, secret_id desc
     limit 1
  ) s on true
 where k.account_id = $1 and k.key_id = any($2::text[])
 order by k.key_id;
