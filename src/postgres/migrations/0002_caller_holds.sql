-- What an internal service holds belongs to no gateway process: it outlives the one that placed it,
-- and is repeated at any.
alter table holds alter column node_id drop not null;

-- Prices are as immutable as the charges that name them.
create trigger price_versions_no_truncate before truncate on price_versions
  for each statement execute function refuse_change();
