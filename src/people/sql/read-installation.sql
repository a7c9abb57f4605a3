-- people/sql/read-installation.sql
-- What this installation knows about itself.
select account_id, challenge_secret from installation;
