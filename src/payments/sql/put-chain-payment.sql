-- Stores what a chain says of one payment. A row: something became of it.
-- $1 processor  $2 external_id  $3 chain  $4 address  $5 asset  $6 decimals  $7 atoms
-- $8 height or null  $9 hash or null  $10 first_seen_at  $11 market_rate or null  $12 spends
insert into chain_payments as p (processor, external_id, chain, address, asset, decimals, atoms,
  state, height, hash, first_seen_at, market_rate, spends)
values ($1, $2, $3, $4, $5, $6, $7, 'seen', $8, $9, $10, $11, $12)
on conflict (processor, external_id) do update
set height = coalesce(excluded.height, p.height), hash = coalesce(excluded.hash, p.hash),
  first_seen_at = least(p.first_seen_at, excluded.first_seen_at), missing_since = null,
  -- One that was lost came back: the order asks a person.
  state = case when p.state = 'lost' then 'seen' else p.state end
where p.state = 'lost' or p.missing_since is not null
  or (excluded.height is not null and p.hash is distinct from excluded.hash)
returning external_id;
