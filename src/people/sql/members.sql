-- timeout_ms=5000

-- name: PutMember :one
-- Adds a person to an account. A member keeps the higher of both roles, which it returns.
insert into members as m (account_id, person_id, role) values (:account_id, :person_id, :role)
on conflict (account_id, person_id) do update
   set role = case when array_position(array['viewer', 'member', 'owner'], m.role)
                      >= array_position(array['viewer', 'member', 'owner'], excluded.role)
                   then m.role else excluded.role end
returning role;

-- name: FindAccount :optional
-- The name and the status of an account. No row: there is none.
select name, status from accounts where account_id = :account_id;

-- name: ListMembers :many
-- The members of an account in the order of their logins, or one of them.
-- :person_id?  null: all
select m.person_id, p.login as "login!", p.name, m.role, m.joined_at,
       (select max(s.used_at) from sessions s where s.person_id = m.person_id) as "last_seen_at?"
  from members m
  join people p on p.person_id = m.person_id
 where m.account_id = :account_id and (:person_id::text is null or m.person_id = :person_id)
 order by p.login
 limit 1000;

-- name: ListRoles :many
-- All members of an account, with their roles.
select person_id, role from members where account_id = :account_id order by person_id;

-- name: ListOwners :many
-- The owners of accounts: of each the first three in the order of their logins, and their number.
select account_id, person_id, login as "login!", name, owners as "owners!"
  from (
    select m.account_id, m.person_id, p.login, p.name,
           (count(*) over (partition by m.account_id))::integer as owners,
           row_number() over (partition by m.account_id order by p.login) as position
      from members m
      join people p on p.person_id = m.person_id
     where m.account_id = any(:account_ids::text[]) and m.role = 'owner' and p.login is not null
  ) ranked
 where position <= 3
 order by account_id, position;

-- name: ListAccountsOfPerson :many
-- The accounts of a person, in the order of their names.
select m.account_id, a.name, m.role, a.status, a.status_reason, a.created_at
  from members m
  join accounts a on a.account_id = m.account_id
 where m.person_id = :person_id
 order by a.name, m.account_id;

-- name: ListRecipients :many
-- The confirmed addresses of the owners of accounts, of these other members, and of the operator
-- admins for the account ''.
select m.account_id as "account_id!", p.person_id as "person_id!", p.email as "address!"
  from members m
  join people p on p.person_id = m.person_id
 where m.account_id = any(:account_ids::text[]) and p.email is not null and p.disabled_at is null
   and (m.role = 'owner' or m.person_id = any(:person_ids::text[]))
union all
select '', person_id, email
  from people
 where '' = any(:account_ids::text[]) and operator = 'admin' and email is not null
   and disabled_at is null;

-- name: ListLogins :many
-- The logins of these persons in these accounts, where they are members.
select m.account_id, m.person_id, p.login as "login!"
  from members m
  join people p on p.person_id = m.person_id
 where m.account_id = any(:account_ids::text[]) and m.person_id = any(:person_ids::text[]);

-- name: LockMembers :many
-- The members of an account, locked until the end of the transaction, and whether they may sign in.
select m.person_id, m.role, p.disabled_at is null as "enabled!"
  from members m
  join people p on p.person_id = m.person_id
 where m.account_id = :account_id
 order by m.person_id
   for update of m;

-- name: LockOwner :optional
-- Locks an owner of an account until the end of the transaction. No row: the person is none.
select m.person_id
  from members m
  join people p on p.person_id = m.person_id
 where m.account_id = :account_id and m.person_id = :person_id and m.role = 'owner'
   and p.disabled_at is null
   for share of m, p;

-- name: ShareMember :optional
-- The role of a member, who keeps it until the end of the transaction. No row: the person is none.
select role from members where account_id = :account_id and person_id = :person_id for share;

-- name: UpdateMember :run
-- Sets the role of a member.
update members set role = :role where account_id = :account_id and person_id = :person_id;

-- name: DeleteMember :run
-- Removes a member.
delete from members where account_id = :account_id and person_id = :person_id;

-- name: LockMember :optional
-- Locks a member of an account, whose changes follow each other. No row: the person is none.
select role from members
 where account_id = :account_id and person_id = :person_id for no key update;
