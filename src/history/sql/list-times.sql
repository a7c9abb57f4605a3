-- Times that divide the charges of a month into parts that were read, in their order.
-- $1 month  $2 blocks of a part
select settled_at::text as settled_at
from closing_blocks
where month = $1::date and number % $2::integer = 0
order by number;
