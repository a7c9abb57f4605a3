-- people/sql/end-links-of-maker.sql
-- Ends the open links that somebody made, to one account or all of them.
-- $1 made_by  $2 account_id; null: all
update links set used_at = now()
 where made_by = $1 and used_at is null and ($2::text is null or account_id = $2);
