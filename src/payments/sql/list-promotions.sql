-- Lists promotions, newest first.
-- $1 cursor: last code_id of the page before, or null  $2 rows at most
select code_id, name, "family", bonus_micro, ends_at, most, used, needs_purchase, created_by,
  created_at, stopped_at
from promotions
where $1::text is null or code_id < $1
order by code_id desc
limit $2;
