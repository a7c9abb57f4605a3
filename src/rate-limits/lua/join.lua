-- rate-limits/lua/join.lua Says that a node is here and has handed in what it admitted by itself.
-- Once all nodes have, the logs count as complete, for as long as nodes keep saying so: a server
-- that lost its memory, or stood still, begins anew. After ten seconds it goes on without those
-- that did not come: they have died, or cannot reach this server. KEYS: 1 name of this memory  2
-- mark that the logs are complete  3 nodes that joined (sorted set: time in ms)  4 waiting since
-- ARGV: 1 node  2 memory to which it has handed in, or empty  3 name for a new memory  4 life of
-- the mark in ms  5… all live nodes Answers {name of the memory; 1 complete | 0 not}
local memory = redis.call('get', KEYS[1])
if not memory then
  memory = ARGV[3]
  redis.call('set', KEYS[1], memory)
  redis.call('del', KEYS[2], KEYS[3])
end
local complete = redis.call('exists', KEYS[2])
if ARGV[2] ~= memory then return {memory, 0} end
local time = redis.call('time')
local now = time[1] * 1000 + time[2] / 1000
redis.call('zadd', KEYS[3], string.format('%.3f', now), ARGV[1])
redis.call('zremrangebyscore', KEYS[3], '-inf', string.format('%.3f', now - ARGV[4]))
redis.call('pexpire', KEYS[3], ARGV[4])
if complete == 0 then
  redis.call('set', KEYS[4], string.format('%.0f', now), 'nx', 'px', 20000)
  local patient = now - redis.call('get', KEYS[4]) < 10000
  for place = 5, #ARGV do
    if patient and not redis.call('zscore', KEYS[3], ARGV[place]) then return {memory, 0} end
  end
  redis.call('set', KEYS[2], 1)
  redis.call('del', KEYS[4])
end
redis.call('pexpire', KEYS[2], ARGV[4])
return {memory, 1}
