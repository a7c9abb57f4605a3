-- How far the charges of a month are read for its closing, whether their lines have a form, and a
-- time in the past. One row; its place is null if nothing is read.
-- $1 month  $2 form of the lines  $3 hours
select b.blocks, b.charges, b.has_form, (now() - $3::integer * interval '1 hour')::text as past,
  l.settled_at::text as settled_at, l.request_id, l.account_id
from (
  select count(*)::integer as blocks, coalesce(sum(charges), 0)::bigint as charges,
    coalesce(bool_and(form = $2::integer), true) as has_form
  from closing_blocks
  where month = $1::date
) b
left join closing_blocks l on l.month = $1::date and l.number = b.blocks;
