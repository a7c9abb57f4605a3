-- people/sql/claim-challenge-secret.sql
-- Sets the secret of the challenges, unless there is one. Returns the one that there is now.
-- $1 secret
update installation set challenge_secret = coalesce(challenge_secret, $1)
returning challenge_secret;
