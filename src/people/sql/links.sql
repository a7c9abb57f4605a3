-- timeout_ms=5000

-- name: InsertLink :one
-- Adds a one-time link.
-- :person_id  of a recovery or an address: the person; otherwise the id that a new person gets
-- :account_id?  null, as the role: it joins no account
-- :role?
-- :login  that it proposes; empty: none
-- :email?  the address to which alone it is sent; null: it is shown
insert into links
  (digest, link_id, purpose, person_id, account_id, role, login, made_by, ends_at, email)
values (:digest, :link_id, :purpose, :person_id, :account_id, :role, :login, :made_by,
        now() + :lifetime_ms::float8 * interval '1 millisecond', :email)
returning link_id as invitation_id, role, login, made_by as created_by, made_at as created_at,
          ends_at, email;

-- name: FindLink :optional
-- A link that can be used.
select link_id, purpose, person_id, account_id, role, login, ends_at, email
  from links
 where digest = :digest and used_at is null and ends_at > now();

-- name: CountInvitations :one
-- The invitations that an account made in the last 24 hours, when the oldest of them leaves that
-- time, and how many are open.
select count(*) filter (where made_at > now() - interval '24 hours')::integer as "made!",
       min(made_at) filter (where made_at > now() - interval '24 hours') + interval '24 hours'
         as "resets_at?",
       count(*) filter (where used_at is null and ends_at > now())::integer as "open!"
  from links
 where account_id = :account_id and purpose = 'invitation'
   and made_at > now() - interval '8 days';

-- name: ListInvitations :many
-- The open invitations of an account, newest first, and what became of their mail.
select l.link_id as "invitation_id!", l.role, l.login as "login!", l.made_by as "created_by!",
       l.made_at as "created_at!", l.ends_at as "ends_at!", l.email,
       m.state as "mail?", m.problem as "mail_problem?"
  from links l
  left join mails m on m.link_id = l.link_id
 where l.account_id = :account_id and l.purpose = 'invitation' and l.used_at is null
   and l.ends_at > now()
 order by l.made_at desc, l.link_id desc
 limit 1000;

-- name: FindInvitation :optional
-- An invitation, also one that was used, and what became of its mail.
select l.link_id as "invitation_id!", l.role, l.login as "login!", l.made_by as "created_by!",
       l.made_at as "created_at!", l.ends_at as "ends_at!", l.email,
       m.state as "mail?", m.problem as "mail_problem?"
  from links l
  left join mails m on m.link_id = l.link_id
 where l.account_id = :account_id and l.link_id = :link_id and l.purpose = 'invitation';

-- name: RenewLink :run
-- Gives an open link a new token. Changes no row: the link was used, or it has ended.
-- :digest  of the token
update links set digest = :digest
 where link_id = :link_id and used_at is null and ends_at > now();

-- name: UseLink :optional
-- Uses a link up. No row: it was used before, it expired, or there is none.
update links set used_at = now()
 where digest = :digest and used_at is null and ends_at > now()
returning link_id, purpose, person_id, account_id, role, login, ends_at, email;

-- name: EndInvitation :run
-- Ends an open invitation of an account. Changes no row: there is none.
update links set used_at = now()
 where account_id = :account_id and link_id = :link_id and purpose = 'invitation'
   and used_at is null and ends_at > now();

-- name: EndLinks :run
-- Ends the open links of a purpose.
-- :person_id?  null: of everybody
update links set used_at = now()
 where purpose = :purpose and used_at is null
   and (:person_id::text is null or person_id = :person_id);

-- name: EndLinksOfMaker :run
-- Ends the open links that somebody made.
-- :account_id?  null: to everything
update links set used_at = now()
 where made_by = :made_by and used_at is null
   and (:account_id::text is null or account_id = :account_id);

-- name: DeleteLinks :run
-- Deletes the links to a person, and those that propose a login.
delete from links where person_id = :person_id or login = :login;
