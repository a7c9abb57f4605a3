-- timeout_ms=5000

-- name: ReplaceApproval :run
-- Ends what waits about the same, unless it is the same request.
update approvals set state = 'replaced', decided_by = :requested_by, decided_at = now()
 where kind = :kind and account_id = :account_id and subject = :subject and state = 'pending'
   and (ends_at <= now() or requested_by <> :requested_by or reason <> :reason
        or request <> :request::jsonb);

-- name: InsertApproval :run
-- Lets a request wait. Changes no row: the same request waits.
insert into approvals
  (approval_id, kind, subject, account_id, what, reason, request, requested_by, person_id,
   usd_micro)
values (:approval_id, :kind, :subject, :account_id, :what, :reason, :request, :requested_by,
        :person_id, :usd_micro)
on conflict (kind, account_id, subject) where state = 'pending' do nothing;

-- name: InsertBypass :run
-- Notes that the machine did what a person could not alone.
insert into approvals
  (approval_id, kind, subject, account_id, what, reason, request, requested_by, person_id,
   usd_micro, state)
values (:approval_id, :kind, :subject, :account_id, :what, :reason, :request, :requested_by, '',
        :usd_micro, 'bypassed');

-- name: ListBypasses :many
-- What the machine did alone since ten seconds before a time, oldest first.
select approval_id, account_id, what, requested_by, requested_at
  from approvals
 where state = 'bypassed' and requested_at > :since::timestamptz - interval '10 seconds'
 order by requested_at
 limit :rows;

-- name: FindWaiting :optional
-- What waits about a subject: with the id, if there is one.
-- :approval_id?
select a.approval_id, a.kind, a.subject, a.account_id, a.what, a.reason, a.requested_by,
       a.person_id, a.usd_micro, a.requested_at, a.ends_at,
       coalesce((select g.usd_micro from given g
                  where g.person_id = a.person_id
                    and g.day = (now() at time zone 'UTC')::date), 0) as "given_usd_micro!"
  from approvals a
 where a.kind = :kind and a.account_id = :account_id and a.subject = :subject
   and a.state = 'pending' and a.ends_at > now()
   and a.approval_id = coalesce(:approval_id, a.approval_id);

-- name: FindApproval :optional
-- A request that waits, or waited.
select kind, account_id, request, reason, requested_by, person_id, state, decided_by,
       ends_at <= now() as "is_over!"
  from approvals
 where approval_id = :approval_id;

-- name: ListApprovals :many
-- What waits, newest first.
-- :before?  the last one of the page before; null: from the newest
select a.approval_id, a.kind, a.subject, a.account_id, a.what, a.reason, a.requested_by,
       a.person_id, a.usd_micro, a.requested_at, a.ends_at,
       coalesce((select g.usd_micro from given g
                  where g.person_id = a.person_id
                    and g.day = (now() at time zone 'UTC')::date), 0) as "given_usd_micro!"
  from approvals a
 where a.state = 'pending' and a.ends_at > now()
   and (:before::text is null or a.approval_id < :before)
 order by a.approval_id desc
 limit :rows;

-- name: CountApprovals :many
-- How many requests about an account wait, by account.
select account_id, count(*)::integer as "approvals!"
  from approvals
 where state = 'pending' and ends_at > now() and account_id <> ''
 group by account_id
 order by account_id desc
 limit :rows;

-- name: EndApproval :run
-- Ends the waiting of a request. Changes no row: it does not wait.
update approvals set state = :state, decided_by = :decided_by, decided_at = now()
 where approval_id = :approval_id and state = 'pending' and ends_at > now();

-- name: LockGiven :one
-- What a person gave away alone in this UTC day, locked until the end of the transaction.
insert into given (person_id, day, usd_micro)
values (:person_id, (now() at time zone 'UTC')::date, 0)
on conflict (person_id, day) do update set usd_micro = given.usd_micro
returning usd_micro;

-- name: AddGiven :run
-- Adds to it.
update given set usd_micro = usd_micro + :usd_micro
 where person_id = :person_id and day = (now() at time zone 'UTC')::date;
