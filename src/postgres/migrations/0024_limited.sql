-- compatible_from: 24
-- Whether a pool or a budget has a limit is a function, which is called as a column is. PostgreSQL
-- builds the expression of a generated column anew for each row that it updates, a tenth of the
-- work of the ledger; a function becomes a part of the statement's plan.
alter table pools drop column is_limited;
alter table budgets drop column is_limited;
create function is_limited(p pools) returns boolean language sql immutable return
  coalesce(p.day_limit, p.week_limit, p.month_limit, p.total_limit, p.running_limit) is not null;
create function is_limited(b budgets) returns boolean language sql immutable return
  coalesce(b.day_limit, b.week_limit, b.month_limit, b.total_limit, b.running_limit) is not null;

-- Of all budgets of an account, those that alerts look at. The column took it along.
create index budgets_limited on budgets (account_id) where
  coalesce(day_limit, week_limit, month_limit, total_limit, running_limit) is not null;
