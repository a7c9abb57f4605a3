-- As the statement of this name elsewhere. Transactions that write charges run on other servers,
-- each of which counts its own: only the margin in time keeps them in order.
select now()::text as at, 0::bigint as first_running, 0::bigint as first_to_come
from (select 1) as always
where not exists (select 1 from sink_cursors where false);
