-- timeout_ms=5000

-- name: InsertPerson :run
-- Adds a person. Changes no row: the login is taken.
-- :email?  a confirmed address
insert into people (person_id, login, name, operator, email, email_verified_at)
values (:person_id, :login, :name, :operator, :email::text,
        case when :email::text is not null then now() end)
on conflict (login) do nothing;

-- name: FindPerson :optional
-- A person, with the last use of a session.
select p.person_id, p.login as "login!", p.name, p.operator, p.email, p.created_at, p.disabled_at,
       (select max(s.used_at) from sessions s where s.person_id = p.person_id) as "last_seen_at?"
  from people p
 where p.person_id = :person_id and p.deleted_at is null;

-- name: FindAddress :optional
-- One row if somebody has this address, or signs in with it.
select 1 as "found!" from people where login = :address or email = :address limit 1;

-- name: FindLogin :optional
-- The person with this login who may sign in, and the hash of the password. Null: no password.
select p.person_id as "person_id!", w.hash as "hash?"
  from people p
  left join passwords w on w.person_id = p.person_id
 where p.login = :login and p.disabled_at is null;

-- name: IsLoginTaken :optional
-- One row if somebody has this login, also if he may not sign in.
select 1 as "found!" from people where login = :login;

-- name: HasOperator :optional
-- One row if an operator admin may sign in.
select 1 as "found!" from people where operator = 'admin' and disabled_at is null limit 1;

-- name: ListPeople :many
-- People in the order of their logins. One whose login or name contains a text.
-- :text  empty: everybody
select p.person_id, p.login as "login!", p.name, p.operator, p.email, p.created_at, p.disabled_at,
       (select max(s.used_at) from sessions s where s.person_id = p.person_id) as "last_seen_at?"
  from people p
 where p.login > :after_login
   and (:text::text = '' or strpos(p.login, lower(:text::text)) > 0
        or strpos(lower(p.name), lower(:text::text)) > 0)
 order by p.login
 limit :rows;

-- name: LockPerson :optional
-- A person, locked until the end of the transaction.
select person_id, login as "login!", name, operator, email, created_at, disabled_at
  from people where person_id = :person_id and deleted_at is null for update;

-- name: SharePerson :optional
-- The operator role of a person who may sign in, and stays so until the end of the transaction. No
-- row: he may not.
select operator from people where person_id = :person_id and disabled_at is null for share;

-- name: ShareOperators :many
-- Those of some people who are operator admins and may sign in. They stay so until the end of the
-- transaction.
select person_id from people
 where person_id = any(:person_ids::text[]) and operator = 'admin' and disabled_at is null
 order by person_id
   for share;

-- name: LockOperators :many
-- The operator admins who may sign in, locked until the end of the transaction.
select person_id from people
 where operator = 'admin' and disabled_at is null
 order by person_id
   for update;

-- name: UpdatePerson :run
-- Sets the operator role of a person, and whether the person is disabled.
update people
   set operator = :operator,
       disabled_at = case when :is_disabled::boolean then coalesce(disabled_at, now()) end
 where person_id = :person_id;

-- name: SetEmail :run
-- Sets or removes the address of a person, who is locked.
-- :email?  a confirmed address; null: none
update people
   set email = :email::text, email_verified_at = case when :email::text is not null then now() end
 where person_id = :person_id;

-- name: DeletePerson :run
-- Leaves only the id of a person, so that nobody else gets it.
update people
   set login = null, name = '', email = null, email_verified_at = null, operator = 'none',
       disabled_at = coalesce(disabled_at, now()), deleted_at = now()
 where person_id = :person_id;

-- name: CountSignUps :one
-- How many accounts the people of a network got by signing up in the last 24 hours.
select count(*)::integer as "made!" from sign_ups
 where network = :network and made_at > now() - interval '24 hours';

-- name: InsertSignUp :run
-- Notes that somebody gets an account by signing up.
insert into sign_ups (account_id, network) values (:account_id, :network)
on conflict (account_id) do nothing;

-- name: RemoveSignUps :run
-- Deletes what counts no more.
delete from sign_ups where made_at < now() - interval '2 days';

-- name: CountAdmins :one
-- How many operator admins may sign in.
select count(*)::integer as "admins!" from people
 where operator = 'admin' and disabled_at is null;
