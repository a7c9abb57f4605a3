-- Stores a promotion. No row: another one has this code.
-- $1 code_id  $2 SHA-256 of the code  $3 name  $4 family  $5 bonus in micro-credits
-- $6 ends_at, or null: never  $7 most, or null: any number  $8 needs_purchase  $9 created_by
insert into promotions (code_id, code_sha256, name, "family", bonus_micro, ends_at, most,
  needs_purchase, created_by)
values ($1, $2, $3, $4, $5, $6, $7, $8, $9)
on conflict (code_sha256) do nothing
returning code_id, name, "family", bonus_micro, ends_at, most, used, needs_purchase, created_by,
  created_at, stopped_at;
