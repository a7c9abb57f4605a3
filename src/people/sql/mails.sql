-- timeout_ms=5000

-- name: InsertMail :run
-- Hands a mail in.
-- :link_id?  null: it has no link
-- :lifetime_ms  how long it is tried
insert into mails (mail_id, kind, address, link_id, facts, ends_at)
values (:mail_id, :kind, :address, :link_id, :facts,
        now() + :lifetime_ms::float8 * interval '1 millisecond');

-- name: CountMails :one
-- The mails of a kind to an address in the last 24 hours.
select count(*)::integer as "made!" from mails
 where address = :address and kind = :kind and made_at > now() - interval '24 hours';

-- name: ClaimMails :many
-- Takes mails that are due, so that no other process sends them. Whoever takes one settles it
-- within two minutes; otherwise it is due again. `attempts` counts this one, which has no problem
-- yet.
update mails
   set attempts = attempts + 1, problem = '', next_at = now() + interval '2 minutes'
 where mail_id in (select mail_id from mails
                    where state = 'waiting' and next_at <= now()
                    order by next_at
                    limit :rows
                      for update skip locked)
returning mail_id, kind, address, link_id, facts, attempts;

-- name: SettleMail :run
-- Records the outcome of an attempt. A mail whose time is over does not wait for another one.
-- :wait_ms  until the next attempt, of a mail that waits
update mails
   set state = case
         when :state = 'waiting' and now() + :wait_ms::float8 * interval '1 millisecond' >= ends_at
           then 'failed' else :state end,
       problem = :problem, next_at = now() + :wait_ms::float8 * interval '1 millisecond'
 where mail_id = :mail_id and state = 'waiting';

-- name: ListInvitationMails :many
-- Lists the mails of the invitations to an account, newest first.
select m.mail_id, m.link_id as "invitation_id!", m.address, m.state, m.problem, m.attempts,
  m.next_at, m.made_at
from links l
join mails m on m.link_id = l.link_id
-- Older mails are removed.
where l.account_id = :account_id and l.made_at > now() - interval '8 days'
  and l.purpose = 'invitation'
order by m.made_at desc, m.mail_id desc
limit 1000;

-- name: DeleteMails :run
-- Deletes the mails to a person, those with a link to him, and those about him. Run it before his
-- links are deleted.
-- :addresses  his login and his address
delete from mails
 where address = any(:addresses::text[])
    or facts ->> 'person' = :person_id
    or link_id in (select link_id from links where person_id = :person_id);

-- name: RemoveMails :run
-- Deletes mails whose outcome nobody asks for any more. No link lives longer.
delete from mails where made_at < now() - interval '8 days';
