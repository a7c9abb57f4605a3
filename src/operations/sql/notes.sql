-- timeout_ms=5000

-- name: InsertNote :run
-- Adds a note. Changes no row: the account does not exist.
insert into account_notes (account_id, note_id, by, text)
select account_id, :note_id, :by, :text
from accounts
where account_id = :account_id;

-- name: FindNote :optional
-- Finds a note.
select note_id, account_id, at, by, text
from account_notes
where account_id = :account_id and note_id = :note_id;

-- name: ListNotes :many
-- Lists the notes about an account, newest first.
-- :before?  the last one of the page before
select note_id, account_id, at, by, text
from account_notes
where account_id = :account_id and (:before::text is null or note_id < :before)
order by note_id desc
limit :rows;
