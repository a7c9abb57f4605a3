-- Fails with a unique violation when one of these requests was charged; stores nothing. Runs after
-- the holds of the requests were inserted: it sees charges that other transactions committed
-- before, and transactions that insert the same request id wait for this commit. So a request is
-- never both held and charged.
-- $1 request_ids
insert into charges select * from charges where request_id = any($1::text[]);
