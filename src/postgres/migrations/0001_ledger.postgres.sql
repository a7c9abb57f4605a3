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
create trigger month_closings_append_only before update or delete on month_closings
  for each row execute function refuse_change();
create trigger month_closings_no_truncate before truncate on month_closings
  for each statement execute function refuse_change();
create trigger closed_months_append_only before update or delete on closed_months
  for each row execute function refuse_change();
create trigger closed_months_no_truncate before truncate on closed_months
  for each statement execute function refuse_change();
-- The partition of a closed month takes no charges: partitions.ts gives it this trigger.
create function refuse_charge() returns trigger language plpgsql as $$
begin
  raise exception 'the month of % is closed', tg_table_name
    using errcode = 'integrity_constraint_violation';
end
$$;
