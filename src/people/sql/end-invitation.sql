-- people/sql/end-invitation.sql
-- Ends an open invitation of an account. No row: there is none.
-- $1 account_id  $2 link_id
update links set used_at = now()
 where account_id = $1 and link_id = $2 and purpose = 'invitation'
   and used_at is null and ends_at > now()
returning link_id;
