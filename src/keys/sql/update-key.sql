-- keys/sql/update-key.sql
-- Changes the members of an active key whose flag is true, and returns the limits that the key had
-- before. No row: the key is revoked or does not exist.
-- $1 key_id  $2 change_id  $3 name?  $4 name  $5 requests_per_minute?  $6 requests_per_minute
-- $7 allowed_models?  $8 allowed_models  $9 monthly_cap?  $10 monthly_cap
-- $11 account_reader?  $12 account_reader  $13 expires_at?  $14 expires_at
with earlier as (
  select key_id, requests_per_minute, allowed_models, monthly_cap, account_reader, expires_at
    from keys
   where key_id = $1 and status = 'active'
     for no key update
), changed as (
  update keys
     set name                = case when $3::boolean then $4::text else name end,
         requests_per_minute = case when $5::boolean then $6::integer else requests_per_minute end,
         allowed_models      = case when $7::boolean then $8::text[] else allowed_models end,
         monthly_cap         = case when $9::boolean then $10::bigint else monthly_cap end,
         account_reader      = case when $11::boolean then $12::boolean else account_reader end,
         expires_at          = case when $13::boolean then $14::timestamptz else expires_at end
   where key_id in (select key_id from earlier)
), announced as (
  insert into key_changes (change_id, key_id)
  select $2, key_id from earlier
)
select requests_per_minute, allowed_models, monthly_cap, account_reader, expires_at from earlier;
