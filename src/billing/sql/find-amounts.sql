-- The amounts of the charges that these requests have. A request without a row has no charge.
-- $1 account_ids  $2 request_ids
select c.account_id, c.request_id, c.amount
from unnest($1::text[], $2::text[]) as asked (account_id, request_id)
join charges c on c.account_id = asked.account_id and c.request_id = asked.request_id;
