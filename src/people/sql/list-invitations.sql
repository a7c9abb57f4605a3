-- people/sql/list-invitations.sql
-- The open invitations of an account, newest first.
-- $1 account_id
select link_id, role, login, made_by, made_at, ends_at
  from links
 where account_id = $1 and purpose = 'invitation' and used_at is null and ends_at > now()
 order by made_at desc, link_id desc
 limit 1000;
