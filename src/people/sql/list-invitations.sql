-- people/sql/list-invitations.sql
-- The open invitations of an account, newest first, and what became of their mail.
-- $1 account_id
select l.link_id, l.role, l.login, l.made_by, l.made_at, l.ends_at, l.email,
       m.state as mail, m.problem as mail_problem
  from links l
  left join mails m on m.link_id = l.link_id
 where l.account_id = $1 and l.purpose = 'invitation' and l.used_at is null and l.ends_at > now()
 order by l.made_at desc, l.link_id desc
 limit 1000;
