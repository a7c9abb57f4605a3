-- Adds digests of the next charges of a month.
-- $1 month  $2 number of the first block  $3 form of the lines  $4 charges  $5 SHA-256 of their
-- lines  $6, $7, $8 settled_at, request_id and account_id of the last one
insert into closing_blocks (month, number, charges, sha256, form, settled_at, request_id,
  account_id)
select $1::date, $2::integer + position::integer - 1, charges, sha256, $3::integer, settled_at,
  request_id, account_id
from unnest($4::integer[], $5::bytea[], $6::timestamptz[], $7::text[], $8::text[])
  with ordinality as b (charges, sha256, settled_at, request_id, account_id, position);
