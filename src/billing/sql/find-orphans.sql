-- Finds holds that no process will settle: holds past their deadline, of the given dead nodes, or
-- of nodes that no longer exist. Ordered by account and request id and paged, so that orphans that
-- cannot be settled do not hide the ones after them.
-- $1 node_ids of dead nodes  $2, $3 cursor: account_id and request_id of the last row of the page
-- before, or ''  $4 rows at most
select h.request_id, h.account_id, h."family", h.key_id, h.secret_id, h.model, h.month, h.nonce,
  h.amount, h.granted_output, h.admitted_at, h.tags, each_category(h.# as used_#), p.price_version,
  each_category(p.#)
from (
  select * from holds where deadline < now()
  union
  select * from holds where node_id = any($1::text[])
  union
  select * from holds
  where node_id is not null
    and not exists (select 1 from nodes where nodes.node_id = holds.node_id)
) h
join price_versions p using (price_version)
where (h.account_id, h.request_id) > ($2, $3)
order by h.account_id, h.request_id
limit $4;
