-- Lists accounts, newest first: all of them, or those that match.
-- $1 cursor: last account_id of the page before, or null  $2 rows at most
-- $3 text in small letters: part of the name of the account, or of the login or the address of an
-- owner; empty: all accounts  $4 account_ids that match the text in another way
-- $5 status; null: any  $6 account_ids of which the result is a part; null: all accounts
select a.account_id
from accounts a
where ($1::text is null or a.account_id < $1)
  and ($5::text is null or a.status = $5)
  and ($6::text[] is null or a.account_id = any($6::text[]))
  and ($3::text = '' or strpos(lower(a.name), $3) > 0 or a.account_id = any($4::text[])
    or exists (
      select 1
      from members m
      join people p on p.person_id = m.person_id
      where m.account_id = a.account_id and m.role = 'owner'
        and (strpos(p.login, $3) > 0 or strpos(lower(p.email), $3) > 0)))
order by a.account_id desc
limit $2;
