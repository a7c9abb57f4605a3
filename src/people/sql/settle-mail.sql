-- people/sql/settle-mail.sql
-- Records the outcome of an attempt. A mail whose time is over does not wait for another one.
-- $1 mail_id  $2 state  $3 problem  $4 milliseconds to the next attempt
update mails
   set state = case
         when $2 = 'waiting' and now() + $4::float8 * interval '1 millisecond' >= ends_at
           then 'failed' else $2 end,
       problem = $3, next_at = now() + $4::float8 * interval '1 millisecond'
 where mail_id = $1 and state = 'waiting';
