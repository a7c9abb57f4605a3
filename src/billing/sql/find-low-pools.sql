-- Finds the pools with fewer free credits than a bound. filled_by is the last transfer after which
-- the pool had at least the bound; null: it never had. A pool that was never filled is left out.
-- $1 account_ids  $2 families  $3 bounds in micro-credits
select p.account_id, p."family", w.below, p.posted - p.held as free,
  (
    select t.transfer_id
    from transfers t
    where t.account_id = p.account_id and t."family" = p."family" and t.amount > 0
      and t.posted_after >= w.below
    order by t.transfer_id desc
    limit 1
  ) as filled_by
from unnest($1::text[], $2::text[], $3::bigint[]) as w (account_id, "family", below)
join pools p on p.account_id = w.account_id and p."family" = w."family"
where p.posted - p.held < w.below
  and exists (
    select 1
    from transfers t
    where t.account_id = p.account_id and t."family" = p."family" and t.amount > 0
  );
