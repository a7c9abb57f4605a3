-- people/sql/end-links.sql
-- Ends the open links of a purpose, of one person or of all.
-- $1 purpose  $2 person_id; null: of all
update links set used_at = now()
 where purpose = $1 and used_at is null and ($2::text is null or person_id = $2);
