-- keys/sql/read-changes.sql Changes of keys since ten seconds before a moment, and the moment of
-- this reading. One row without a change when there is none. The ten seconds: transactions commit
-- out of the order of their times.
-- $1 moment of the last reading; null: now
select statement_timestamp() as read_at, c.change_id, c.key_id
  from (select 1) as always
  left join key_changes c on c.changed_at > coalesce($1::timestamptz, statement_timestamp()) - interval '10 seconds';
