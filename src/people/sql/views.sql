-- timeout_ms=5000

-- name: ListViews :many
-- The views of an account, and those of a person in it, each in the order of their names.
select view_id, person_id, name, address, saved_at
  from saved_views
 where account_id = :account_id and (person_id is null or person_id = :person_id)
 order by person_id nulls first, name, view_id;

-- name: CountOtherViews :one
-- How many views the account has, or a person in it, besides the one of a name.
-- :person_id?  null: those of the account
select count(*)::integer as "views!"
  from saved_views
 where account_id = :account_id and person_id is not distinct from :person_id::text
   and name <> :name;

-- name: PutView :one
-- Saves a view. One of the same name is replaced, and keeps its id.
-- :person_id?  null: of the account
insert into saved_views as v (view_id, account_id, person_id, name, address)
values (:view_id, :account_id, :person_id, :name, :address)
on conflict (account_id, person_id, name) do update
   set address = excluded.address, saved_at = now()
returning view_id, person_id, name, address, saved_at;

-- name: FindView :optional
-- A view of an account, or of a person in it.
select view_id, person_id, name
  from saved_views
 where account_id = :account_id and view_id = :view_id
   and (person_id is null or person_id = :person_id);

-- name: DeleteView :run
-- Deletes a view of an account.
delete from saved_views where account_id = :account_id and view_id = :view_id;
