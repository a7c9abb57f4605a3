-- timeout_ms=5000

-- name: ReadInstallation :one
-- What this installation knows about itself. `account_id`: of the first start; null: none made one.
select account_id from installation;

-- name: ClaimAccount :one
-- Names the account of the first start, unless it has one. Returns the one that it has now.
update installation set account_id = coalesce(account_id, :account_id)
returning account_id as "account_id!";

-- name: ClaimCell :one
-- Makes this the database of a cell, unless it is one. Returns the cell that it has now.
-- :installation_id  a new one, for a database without
update installation
   set cell = coalesce(cell, :cell),
       installation_id = coalesce(installation_id, :installation_id)
returning cell as "cell!", installation_id as "installation_id!";

-- name: TouchAdminToken :run
-- Notes that the token of the environment was used.
update installation set admin_token_used_at = now();

-- name: ReadAdminTokenUse :one
-- When the token of the environment was used last.
select admin_token_used_at as used_at from installation;
