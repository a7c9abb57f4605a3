-- name: FindAccounts :many
-- Lists accounts, newest first: all of them, or those that match.
-- :before?  the last one of the page before
-- :text  part of a name, or of the login or the address of an owner; empty: all
-- :matching  accounts that match the text in another way
-- :status? accounts.status  null: any
-- :among?  the only accounts to look at; null: all
select a.account_id
from accounts a
where (:before::text is null or a.account_id < :before)
  and (:status::text is null or a.status = :status)
  and (:among::text[] is null or a.account_id = any(:among::text[]))
  and (:text::text = '' or strpos(lower(a.name), :text) > 0 or a.account_id = any(:matching::text[])
    or exists (
      select 1
      from members m
      join people p on p.person_id = m.person_id
      where m.account_id = a.account_id and m.role = 'owner'
        and (strpos(p.login, :text) > 0 or strpos(lower(p.email), :text) > 0)))
order by a.account_id desc
limit :rows;
