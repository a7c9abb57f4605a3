-- people/sql/insert-audit-event.sql
-- Stores an administrative act.
-- $1 event_id  $2 at  $3 actor  $4 account_id  $5 method  $6 outcome  $7 facts  $8 address
insert into audit_events (event_id, at, actor, account_id, method, outcome, facts, address)
values ($1, $2, $3, $4, $5, $6, $7, $8);
