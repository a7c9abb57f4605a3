-- Adds a sink, which has no charge yet, unless it is known.
-- $1 sink
insert into sink_cursors (sink)
values ($1)
on conflict (sink) do nothing;
