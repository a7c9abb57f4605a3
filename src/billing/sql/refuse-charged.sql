-- Fails with a unique violation when one of these requests was charged. Run after its holds were
-- stored, it sees what others committed before, and others that want the same request id wait for
-- our commit: a request is never held and charged. Stores nothing.
-- $1 request_ids
insert into charges select * from charges where request_id = any($1::text[]);
