-- Closes a month whose sums are stored. Returns what is stored.
-- $1 month  $2 SHA-256 of its lines  $3 their form
insert into month_closings (month, charges, amount, sha256, form)
select $1::date, coalesce(sum(requests), 0)::bigint, coalesce(sum(amount), 0)::bigint, $2, $3
from closed_months
where month = $1::date
returning month, charges, amount, sha256, form, closed_at;
