-- people/sql/count-invitations.sql
-- The invitations that an account made in the last 24 hours, and when the oldest of them leaves
-- that time.
-- $1 account_id
select count(*)::integer as made, min(made_at) + interval '24 hours' as resets_at
  from links
 where account_id = $1 and purpose = 'invitation' and made_at > now() - interval '24 hours';
