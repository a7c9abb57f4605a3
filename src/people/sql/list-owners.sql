-- people/sql/list-owners.sql
-- The owners of accounts: of each the first three in the order of their logins, and their number.
-- $1 account_ids
select account_id, person_id, login, name, owners
  from (
    select m.account_id, m.person_id, p.login, p.name,
           (count(*) over (partition by m.account_id))::integer as owners,
           row_number() over (partition by m.account_id order by p.login) as position
      from members m
      join people p on p.person_id = m.person_id
     where m.account_id = any($1::text[]) and m.role = 'owner' and p.login is not null
  ) ranked
 where position <= 3
 order by account_id, position;
