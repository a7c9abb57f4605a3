-- timeout_ms=5000

-- name: ReadInstallation :one
-- What this installation knows about itself. `account_id`: of the first start; null: none made one.
select account_id, challenge_secret from installation;

-- name: ClaimAccount :one
-- Names the account of the first start, unless it has one. Returns the one that it has now.
update installation set account_id = coalesce(account_id, :account_id)
returning account_id as "account_id!";

-- name: ClaimChallengeSecret :one
-- Sets the secret that signs challenges, unless there is one. Returns the one that there is now.
update installation set challenge_secret = coalesce(challenge_secret, :secret)
returning challenge_secret as "challenge_secret!";

-- name: ClaimCleaning :run
-- Takes on the daily removal of old data. Changes no row: a process did so within the last day.
update installation set cleaned_at = now()
 where cleaned_at is null or cleaned_at <= now() - interval '1 day';

-- name: TouchAdminToken :run
-- Notes that the token of the environment was used.
update installation set admin_token_used_at = now();

-- name: ReadAdminTokenUse :one
-- When the token of the environment was used last.
select admin_token_used_at as used_at from installation;
