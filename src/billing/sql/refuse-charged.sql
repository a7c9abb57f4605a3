-- Fails with a unique violation when one of these requests was charged; stores nothing. Runs after
-- the holds of the requests were inserted: it sees charges that others committed before, and others
-- that want the same request id wait for our commit. So a request is never both held and charged.
-- $1 request_ids
insert into charges select * from charges where request_id = any($1::text[]);
