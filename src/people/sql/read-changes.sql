-- people/sql/read-changes.sql
-- Changes of people and admin tokens since ten seconds before a time, and the time of this read.
-- One row without a change if there is none. The ten seconds: transactions do not commit in the
-- order of their times.
-- $1 time of the previous read; null: now
select statement_timestamp() as read_at, c.change_id, c.subject_id
  from (select 1) as always
  left join people_changes c
    on c.changed_at
       > coalesce($1::timestamptz, statement_timestamp()) - interval '10 seconds';
