-- keys/sql/page-account-keys.sql
-- Ids of an account's keys after a given one, oldest first. Of those that match both filters.
-- $1 account_id  $2 key_id to start after, empty for the first  $3 most rows
-- $4 status; null: all  $5 part of a name or hint, or a key_id; empty: all
select k.key_id
  from keys k
 where k.account_id = $1 and k.key_id > $2
   and ($4::text is null
        or case when k.status = 'revoked' then 'revoked'
               when k.expires_at <= now() then 'expired'
               when k.paused then 'paused'
               else 'active' end = $4)
   and ($5::text = '' or k.key_id = $5 or strpos(lower(k.name), lower($5::text)) > 0
        or exists (select 1 from key_secrets s
                    where s.key_id = k.key_id and strpos(s.shown, $5::text) > 0))
 order by k.key_id
 limit $3;
