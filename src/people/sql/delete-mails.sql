-- people/sql/delete-mails.sql
-- Deletes the mails to a person, and those with a link to him.
-- $1 person_id  $2 his login and his address
delete from mails
 where address = any($2::text[])
    or link_id in (select link_id from links where person_id = $1);
