-- timeout_ms=5000

-- name: CountAttempts :many
-- Counts a password attempt for each subject, before its outcome is known. `counted` is false for a
-- subject that has to wait: it is not counted. After the free failures of its kind, each failure
-- doubles the wait: 1 s, 2 s, 4 s … 15 min. A login alone never waits. A subject without a failure
-- for an hour starts anew. Without a wait, `wait_until` is long past: a time of now could be ahead
-- of an attempt at the same time, whose transaction began before.
-- :subjects  in ascending order
-- :kinds sign_in_failures.kind
insert into sign_in_failures as f (subject, kind, failures, last_at, wait_until)
select subject, kind, 1, now(), 'epoch'::timestamptz
  from unnest(:subjects::bytea[], :kinds::text[]) as attempt (subject, kind)
 order by subject
on conflict (subject) do update
   set failures = case when f.wait_until > now() then f.failures
                       when f.last_at < now() - interval '1 hour' then 1
                       else f.failures + 1 end,
       last_at = case when f.wait_until > now() then f.last_at else now() end,
       wait_until = case
         when f.wait_until > now() then f.wait_until
         when f.kind = 'login' or f.last_at < now() - interval '1 hour' then 'epoch'
         when f.failures + 1 < case f.kind when 'pair' then 5 else 20 end then 'epoch'
         else now() + interval '1 second' * least(900, power(2, least(10,
                f.failures + 1 - case f.kind when 'pair' then 5 else 20 end)))
       end
returning kind, failures, last_at = now() as "counted!",
          extract(epoch from (wait_until - now()))::float8 * 1000 as "wait_ms!";

-- name: SpendChallenge :run
-- Uses up a challenge. Changes no row: it was answered before.
-- :lifetime_ms  how long it is good
insert into spent_challenges (digest, ends_at)
values (:digest, now() + :lifetime_ms::float8 * interval '1 millisecond')
on conflict (digest) do nothing;

-- name: ReadWaits :optional
-- How long the subjects have to wait before the next password attempt. No row: none has to.
select max(extract(epoch from (wait_until - now())))::float8 * 1000 as "wait_ms!"
  from sign_in_failures
 where subject = any(:subjects::bytea[]) and wait_until > now()
having count(*) > 0;

-- name: ForgiveAttempt :run
-- Takes the count of an attempt back, because it succeeded. The login starts anew in its network.
-- Locks the subjects in the order in which attempts are counted.
with locked as (
  select subject from sign_in_failures
   where subject = any(:subjects::bytea[])
   order by subject
     for update
)
update sign_in_failures
   set failures = case when kind = 'pair' then 0 else greatest(0, failures - 1) end,
       wait_until = 'epoch'
 where subject in (select subject from locked);

-- name: RemoveChallenges :run
-- Deletes challenges whose time is over.
delete from spent_challenges where ends_at < now();

-- name: RemoveFailures :run
-- Deletes counts that have no effect any more.
delete from sign_in_failures
 where last_at < now() - interval '1 hour' and wait_until < now();
