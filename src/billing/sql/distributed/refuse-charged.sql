-- Fails with a unique violation when one of these requests was charged lately; stores nothing. Runs
-- after the holds of the requests were inserted: it sees charges that other transactions committed
-- since this one read the used requests, and transactions that insert the same request wait for
-- this commit. So a request is never both held and charged. Such a charge is of the current UTC
-- month or of the one before.
-- $1 account_ids  $2 request_ids
insert into charges
select charges.*
from charges
join unnest($1::text[], $2::text[]) as d (account_id, request_id) using (account_id, request_id)
where month between
  (date_trunc('month', now() at time zone 'utc') - interval '1 month')::date
  and date_trunc('month', now() at time zone 'utc')::date
  of_accounts(charges.account_id);
