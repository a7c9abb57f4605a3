-- name: RegisterNode :run
-- Registers a node as live.
insert into nodes (node_id, process) values (:node_id, :process);

-- name: NodeClock :optional
-- Returns the database's time of this transaction and its UTC month, and locks the row of this node
-- against deletion. No row: the node was declared dead, and must not admit requests.
select now() as "at!", date_trunc('month', now() at time zone 'utc')::date as "month!"
from nodes
where node_id = :node_id
for key share;

-- name: ListNodes :many
-- Lists all nodes, in the order of their starts.
select node_id, started_at, silent_polls, report, reported_at
from nodes
order by node_id;

-- name: PollNodes :many timeout_ms=2000
-- Counts a poll of every other node, and returns all nodes with the polls since their last
-- heartbeat. The count is in the database, so it goes on when the polling process is replaced; it
-- stands still while no process reaches the database. However many processes poll, a node is
-- counted once per interval. Rows are locked in the order of their ids, and in a mode that
-- admissions, which lock the row of their node against deletion, do not wait for.
with due as (
  select node_id
  from nodes
  where node_id <> :node_id
    and polled_at <= now() - :interval_ms::integer * interval '1 millisecond'
  order by node_id
  for no key update
), counted as (
  update nodes
  set silent_polls = silent_polls + 1, polled_at = now()
  from due
  where nodes.node_id = due.node_id
  returning nodes.node_id, nodes.silent_polls
)
select n.node_id as "node_id!", n.process as "process!",
  coalesce(c.silent_polls, n.silent_polls) as "silent_polls!"
from nodes n
left join counted c on n.node_id = c.node_id
order by n.node_id;

-- name: RecordHeartbeat :run timeout_ms=2000
-- Records a heartbeat of a node. Changes no row: the node was declared dead. The time limit is
-- shorter than the silence after which a node is dead: a heartbeat that a lost network swallowed is
-- sent again on another connection.
update nodes set silent_polls = 0, polled_at = now() where node_id = :node_id;

-- name: ReportNode :run
-- Stores how a node describes itself.
update nodes set report = :report, reported_at = now() where node_id = :node_id;

-- name: DeleteNode :run
-- Removes a node that stopped or died, unless holds of it are left.
delete from nodes
where node_id = :node_id and not exists (select 1 from holds where node_id = :node_id);
