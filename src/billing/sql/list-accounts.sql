-- Lists accounts, oldest first: all of them, or those that match.
-- $1 cursor: last account_id of the page before, or ''  $2 rows at most
-- $3 part of a name in small letters; empty: all accounts  $4 account_ids that match in another way
select account_id, name, created_at, status, status_reason, status_changed_at, billing_name,
  billing_address, billing_tax_id
from accounts
where account_id > $1
  and ($3 = '' or strpos(lower(name), $3) > 0 or account_id = any($4::text[]))
order by account_id
limit $2;
