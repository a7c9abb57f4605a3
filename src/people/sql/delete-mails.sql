-- people/sql/delete-mails.sql
-- Deletes the mails to a person, those with a link to him, and those about him.
-- $1 person_id  $2 his login and his address
delete from mails
 where address = any($2::text[])
    or facts ->> 'person' = $1
    or link_id in (select link_id from links where person_id = $1);
