-- A hold of an internal service belongs to no gateway process: it outlives the process that placed
-- it, and the service may repeat its request at any process.
alter table holds alter column node_id drop not null;

-- Prices are as immutable as the charges that name them.
create trigger price_versions_no_truncate before truncate on price_versions
  for each statement execute function refuse_change();
