-- people/sql/use-passkey.sql
-- Records a use of a passkey. No row: it was removed.
-- $1 credential_id  $2 counter
update passkeys set counter = greatest(counter, $2), used_at = now()
 where credential_id = $1
returning passkey_id;
