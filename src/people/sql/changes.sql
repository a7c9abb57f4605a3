-- timeout_ms=5000

-- name: InsertChange :run
-- Tells every process that what it knows of a person or an admin token is out of date.
-- :subject_id  of the person or the token
insert into people_changes (change_id, subject_id) values (:change_id, :subject_id);

-- name: ReadChanges :many
-- Changes of people and admin tokens since ten seconds before a time, and the time of this read.
-- One row without a change if there is none. The ten seconds: transactions do not commit in the
-- order of their times.
-- :since?  the time of the previous read; null: now
select statement_timestamp() as "read_at!", c.change_id as "change_id?",
       c.subject_id as "subject_id?"
  from (select 1) as always
  left join people_changes c
    on c.changed_at
       > coalesce(:since::timestamptz, statement_timestamp()) - interval '10 seconds';

-- name: RemoveChanges :run
-- Deletes changes that every running process read long ago.
delete from people_changes where changed_at < now() - interval '1 day';
