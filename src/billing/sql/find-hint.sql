-- Finds the accounts that have a secret whose hint begins and ends like this.
-- $1 first characters, or ''  $2 last characters, or ''
select distinct k.account_id
from key_secrets s
join keys k using (key_id)
where starts_with(s.shown, $1) and right(s.shown, length($2)) = $2
limit 1000;
