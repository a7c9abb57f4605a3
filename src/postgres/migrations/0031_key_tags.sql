-- compatible_from: 30
-- How often a key was changed: who changes many keys at once leaves alone those that somebody else
-- has changed meanwhile. A trigger counts, so that no statement can forget it.
alter table keys add revision integer not null default 0;
create function count_revision() returns trigger language plpgsql as $$
begin
  new.revision := old.revision + 1;
  return new;
end $$;
create trigger keys_revision before update on keys
  for each row execute function count_revision();

-- By which people group keys. A key has ten tags at most.
create table key_tags (
  key_id     text collate "C" not null references keys,
  account_id text collate "C" not null,
  tag        text collate "C" not null,
  value      text collate "C" not null,
  primary key (key_id, tag)
);
-- Values are found by their beginning, and keys by a value.
create index key_tags_by_value on key_tags (account_id, tag, value, key_id);

-- Called as a column is. 80 % of a limit was charged in one of the windows, as `base/budgets.ts`
-- reads them: a row that was last changed before the window began has spent nothing in it.
create function is_near_limit(b budgets) returns boolean language sql stable return
  coalesce(b.day_limit, b.week_limit, b.month_limit, b.total_limit) is not null
  and (
    case when b.day >= (now() at time zone 'utc')::date
      then b.spent - b.day_base else 0 end >= b.day_limit * 0.8
    or case when b.day >= date_trunc('week', now() at time zone 'utc')::date
      then b.spent - b.week_base else 0 end >= b.week_limit * 0.8
    or case when b.day >= date_trunc('month', now() at time zone 'utc')::date
      then b.spent - b.month_base else 0 end >= b.month_limit * 0.8
    or b.spent - b.total_base >= b.total_limit * 0.8);
