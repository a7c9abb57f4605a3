-- compatible_from: 21
-- True: a management key has set the limits last, or paused the key. What an owner did so it may
-- neither raise nor undo.
alter table keys
  add limited_by_program boolean not null default false,
  add paused_by_program  boolean not null default false;

-- Of all budgets of an account, those that alerts look at.
create index budgets_limited on budgets (account_id) where is_limited;

-- Who has seen the secret, as `management_keys.created_by`: it ends when he is shut out.
alter table management_secrets add made_by text not null default '';
update management_secrets s
set made_by = k.created_by
from management_keys k
where k.management_key_id = s.management_key_id;

-- The sums of persons and management keys of a closed month stay as they are.
create function refuse_closed_change() returns trigger language plpgsql as $$
begin
  if exists (select from month_closings where month in (old.month, new.month)) then
    raise exception '% of a closed month is append-only', tg_table_name
      using errcode = 'integrity_constraint_violation';
  end if;
  return coalesce(new, old);
end
$$;
create trigger closed_budgets_append_only before insert or update or delete on closed_budgets
  for each row execute function refuse_closed_change();
create trigger closed_budgets_no_truncate before truncate on closed_budgets
  for each statement execute function refuse_change();
