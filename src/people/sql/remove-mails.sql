-- people/sql/remove-mails.sql
-- Deletes mails whose outcome nobody asks for any more. No link lives longer.
delete from mails where made_at < now() - interval '8 days';
