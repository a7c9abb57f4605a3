-- rate-limits/lua/register.lua
-- Heartbeat of a node. A node that has synced its entries to the current epoch becomes registered.
-- When all live nodes are registered, the windows are complete and the synced mark is set; further
-- heartbeats extend its life. A server that lost its data or was paused therefore starts over.
-- Nodes that have not registered after ten seconds are ignored: they died or cannot reach Redis.
-- KEYS: 1 epoch  2 synced mark  3 registered nodes (sorted set: node id, scored by its last
--       heartbeat in ms)  4 time in ms since which nodes are awaited
-- ARGV: 1 node id  2 epoch to which the node has synced, or empty  3 id for a new epoch
--       4 life of the synced mark in ms  5 … ids of all live nodes
-- Returns {epoch, 1 synced | 0 not synced}
local epoch = redis.call('get', KEYS[1])
if not epoch then
  epoch = ARGV[3]
  redis.call('set', KEYS[1], epoch)
  redis.call('del', KEYS[2], KEYS[3])
end
local synced = redis.call('exists', KEYS[2])
if ARGV[2] ~= epoch then return {epoch, 0} end
local time = redis.call('time')
local now = time[1] * 1000 + time[2] / 1000
redis.call('zadd', KEYS[3], string.format('%.3f', now), ARGV[1])
redis.call('zremrangebyscore', KEYS[3], '-inf', string.format('%.3f', now - ARGV[4]))
redis.call('pexpire', KEYS[3], ARGV[4])
if synced == 0 then
  redis.call('set', KEYS[4], string.format('%.0f', now), 'nx', 'px', 20000)
  local waiting = now - redis.call('get', KEYS[4]) < 10000
  for index = 5, #ARGV do
    if waiting and not redis.call('zscore', KEYS[3], ARGV[index]) then return {epoch, 0} end
  end
  redis.call('set', KEYS[2], 1)
  redis.call('del', KEYS[4])
end
redis.call('pexpire', KEYS[2], ARGV[4])
return {epoch, 1}
