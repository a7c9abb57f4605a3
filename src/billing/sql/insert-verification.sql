-- Stores what a check of the ledger found.
-- $1 verification_id  $2 started_at  $3 ended_at  $4 started_by  $5 number of violations
-- $6 the first violations
insert into verifications
  (verification_id, started_at, ended_at, started_by, violation_count, violations)
values ($1, $2, $3, $4, $5, $6);
