-- timeout_ms=5000

-- name: InsertPasskey :optional
-- Adds a passkey to a person. No row: the credential exists.
insert into passkeys (credential_id, passkey_id, person_id, public_key, counter, name)
values (:credential_id, :passkey_id, :person_id, :public_key, :counter, :name)
on conflict (credential_id) do nothing
returning passkey_id, name, created_at, used_at;

-- name: InsertIdentity :run
-- Binds an identity to a person. Changes no row: it belongs to somebody.
insert into identities (issuer, subject, identity_id, person_id)
values (:issuer, :subject, :identity_id, :person_id)
on conflict (issuer, subject) do nothing;

-- name: PutPassword :run
-- Sets the password of a person.
insert into passwords (person_id, hash) values (:person_id, :hash)
on conflict (person_id) do update set hash = excluded.hash, changed_at = now();

-- name: FindPasskey :optional
-- A passkey of a person who may sign in.
select k.credential_id, k.person_id, k.public_key, k.counter
  from passkeys k
  join people p on p.person_id = k.person_id
 where k.credential_id = :credential_id and p.disabled_at is null;

-- name: FindPassword :optional
-- The hash of a person's password. No row: no password.
select hash from passwords where person_id = :person_id;

-- name: FindIdentity :optional
-- The person to whom an identity belongs, and the roles that its groups gave the last time: by
-- account id in `accounts`.
select identity_id, person_id, operator, accounts
  from identities where issuer = :issuer and subject = :subject;

-- name: CountWaysIn :one
-- How many ways in a person has: passkeys, a password, and identities of these issuers.
select ((select count(*) from passkeys where person_id = :person_id)
      + (select count(*) from passwords where person_id = :person_id)
      + (select count(*) from identities
          where person_id = :person_id and issuer = any(:issuers::text[])))::integer as "ways!";

-- name: ListPasskeys :many
-- The passkeys of a person, oldest first.
select credential_id, passkey_id, name, created_at, used_at
  from passkeys where person_id = :person_id
 order by created_at, passkey_id;

-- name: ListIdentities :many
-- The identities of a person, oldest first.
select identity_id, issuer, created_at, used_at
  from identities where person_id = :person_id
 order by created_at, identity_id;

-- name: UsePasskey :optional
-- Records a use of a passkey. No row: it was removed.
update passkeys set counter = greatest(counter, :counter), used_at = now()
 where credential_id = :credential_id
returning passkey_id;

-- name: UseIdentity :run
-- Records the use of an identity, and the roles that its groups give. Changes no row: it was
-- removed.
-- :accounts  account id → role
update identities set used_at = now(), operator = :operator, accounts = :accounts
 where identity_id = :identity_id and person_id = :person_id;

-- name: DeletePasskey :run
-- Removes a passkey of a person. Changes no row: there is none.
delete from passkeys where person_id = :person_id and passkey_id = :passkey_id;

-- name: DeletePasskeys :run
-- Removes all passkeys of a person.
delete from passkeys where person_id = :person_id;

-- name: DeletePassword :run
-- Removes the password of a person.
delete from passwords where person_id = :person_id;

-- name: DeleteIdentity :run
-- Removes an identity of a person. Changes no row: there is none.
delete from identities where person_id = :person_id and identity_id = :identity_id;

-- name: DeleteIdentities :run
-- Removes the identities of a person.
delete from identities where person_id = :person_id;
