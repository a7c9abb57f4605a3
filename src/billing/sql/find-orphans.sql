-- Finds holds that no process will settle: holds past their deadline, of the given dead nodes, or
-- of nodes that no longer exist. Ordered by request id and paged, so that orphans that cannot be
-- settled do not hide the ones after them.
-- $1 node_ids of dead nodes  $2 cursor: last request_id of the page before, or ''  $3 rows at most
select h.request_id, h.account_id, h.family, h.key_id, h.secret_id, h.model, h.month, h.nonce,
  h.amount, h.granted_output, h.admitted_at, each_category(h.# as used_#), p.price_version,
  each_category(p.#)
from (
  select * from holds where deadline < now()
  union
  select * from holds where node_id = any($1::text[])
  union
  select * from holds where node_id is not null and node_id not in (select node_id from nodes)
) h
join price_versions p using (price_version)
where h.request_id > $2
order by h.request_id
limit $3;
