-- Charges, transfers and prices are append-only for every database user. The role of the gateway
-- has no right to change them either; triggers also stop their owner.
create function refuse_change() returns trigger language plpgsql as $$
begin
  raise exception '% is append-only', tg_table_name
    using errcode = 'integrity_constraint_violation';
end
$$;
create trigger charges_append_only before update or delete on charges
  for each row execute function refuse_change();
create trigger charges_no_truncate before truncate on charges
  for each statement execute function refuse_change();
create trigger transfers_append_only before update or delete on transfers
  for each row execute function refuse_change();
create trigger transfers_no_truncate before truncate on transfers
  for each statement execute function refuse_change();
create trigger price_versions_append_only before update or delete on price_versions
  for each row execute function refuse_change();
create trigger price_versions_no_truncate before truncate on price_versions
  for each statement execute function refuse_change();
