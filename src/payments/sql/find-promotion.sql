-- Finds the promotion of a code.
-- $1 SHA-256 of the code
select code_id, name, "family", bonus_micro, ends_at, most, used, needs_purchase, created_by,
  created_at, stopped_at
from promotions
where code_sha256 = $1;
