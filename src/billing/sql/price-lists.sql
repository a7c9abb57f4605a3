-- name: InsertPriceList :run
-- Makes a price list without a version. Unique violation: the name is taken.
insert into price_lists (price_list_id, name, made_by) values (:price_list_id, :name, :made_by);

-- name: LockPriceList :optional
-- Locks a price list. No row: no such list.
select name from price_lists where price_list_id = :price_list_id for update;

-- name: ReadNewestVersion :one
-- Reads the number of the newest version of a price list that the caller has locked. A statement
-- of its own: one that waits for the lock sees the versions of before the wait.
select max(n) as "newest?" from price_list_versions where price_list_id = :price_list_id;

-- name: CountPriceLists :one
-- Counts the price lists, and those with a name.
select count(*)::integer as "lists!",
  (count(*) filter (where name = :name))::integer as "named!"
from price_lists;

-- name: InsertPriceListVersion :run
-- Adds a version to a price list that the caller has locked or made.
insert into price_list_versions (price_list_id, n, discount_bp, models, reason, made_by)
values (:price_list_id, :n, :discount_bp, :models, :reason, :made_by);

-- name: ReadPriceLists :many
-- Reads the newest version of each price list, in the order of their names.
select l.price_list_id as "price_list_id!", l.name as "name!", l.made_at as "list_made_at!",
  v.n as "n!", v.discount_bp as "discount_bp!", v.models as "models!", v.reason as "reason!",
  v.made_by as "made_by!", v.made_at as "made_at!",
  (select count(*) from accounts a where a.price_list_id = l.price_list_id)::integer
    as "accounts!"
from price_lists l
cross join lateral (
  select *
  from price_list_versions
  where price_list_id = l.price_list_id
  order by n desc
  limit 1
) v
order by l.name;

-- name: ReadListsInForce :many
-- Reads what the newest version of each price list says.
select l.price_list_id as "price_list_id!", l.name as "name!", v.n as "n!",
  v.discount_bp as "discount_bp!", v.models as "models!"
from price_lists l
cross join lateral (
  select *
  from price_list_versions
  where price_list_id = l.price_list_id
  order by n desc
  limit 1
) v;

-- name: ReadAccountsOfList :one
-- Counts the accounts that have a price list, and names them by one digest. The list is locked:
-- nobody gives it meanwhile.
select count(*)::integer as "accounts!",
  coalesce(md5(string_agg(account_id, ' ' order by account_id)), '') as "digest!"
from accounts
where price_list_id = :price_list_id;

-- name: SetPriceList :one
-- Gives an account a price list. The caller has locked the account.
-- :price_list_id?  null: the public prices
update accounts
set price_list_id = :price_list_id, price_list_at = now()
where account_id = :account_id
returning account_id, name, created_at, status, status_reason, status_changed_at, billing_name,
  billing_address, billing_tax_id, price_list_id, price_list_at;

-- name: FindPriceList :optional
-- Finds the price list of an account. No row: no such account.
select price_list_id from accounts where account_id = :account_id;
