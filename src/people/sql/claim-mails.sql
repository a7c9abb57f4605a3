-- people/sql/claim-mails.sql
-- Takes mails that are due, so that no other process sends them. Whoever takes one settles it
-- within two minutes; otherwise it is due again.
-- $1 most mails
update mails
   set attempts = attempts + 1, next_at = now() + interval '2 minutes'
 where mail_id in (select mail_id from mails
                    where state = 'waiting' and next_at <= now()
                    order by next_at
                    limit $1
                      for update skip locked)
returning mail_id, kind, address, link_id, facts, attempts;
