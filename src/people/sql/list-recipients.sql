-- people/sql/list-recipients.sql
-- The confirmed addresses of the owners of accounts, of these other members, and of the operator
-- admins for the account ''.
-- $1 account_ids  $2 person_ids
select m.account_id, p.person_id, p.email
  from members m
  join people p on p.person_id = m.person_id
 where m.account_id = any($1::text[]) and p.email is not null and p.disabled_at is null
   and (m.role = 'owner' or m.person_id = any($2::text[]))
union all
select '', person_id, email
  from people
 where '' = any($1::text[]) and operator = 'admin' and email is not null and disabled_at is null;
