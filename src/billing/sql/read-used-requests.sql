-- Of these request ids, the ones in use and the ones charged.
-- $1 request_ids
select request_id, node_id, nonce, key_id, model, amount, admitted_at, month
from holds
where request_id = any($1::text[])
union all
select request_id, '', '', key_id, model, 0, admitted_at, month
from charges
where request_id = any($1::text[]);
