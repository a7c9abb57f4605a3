-- Counts a poll of every other node, and returns all nodes with the polls since their last
-- heartbeat. The count is in the database, so it goes on when the polling process is replaced; it
-- stands still while no process reaches the database. However many processes poll, a node is
-- counted once per interval. Rows are locked in the order of their ids, and in a mode that
-- admissions, which lock the row of their node against deletion, do not wait for.
-- $1 node_id of the polling node  $2 interval in milliseconds
with due as (
  select node_id
  from nodes
  where node_id <> $1 and polled_at <= now() - $2::integer * interval '1 millisecond'
  order by node_id
  for no key update
), counted as (
  update nodes
  set silent_polls = silent_polls + 1, polled_at = now()
  from due
  where nodes.node_id = due.node_id
  returning nodes.node_id, nodes.silent_polls
)
select n.node_id, n.process, coalesce(c.silent_polls, n.silent_polls) as silent_polls
from nodes n
left join counted c on n.node_id = c.node_id
order by n.node_id;
