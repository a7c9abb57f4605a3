-- rate-limits/lua/sync.lua
-- Adds requests that a node admitted without Redis to a window. Idempotent.
-- KEYS: 1 window of the limit   ARGV: 1 age in ms  2 request id  3 age  4 request id …
local time = redis.call('time')
local now = time[1] * 1000 + time[2] / 1000
for index = 1, #ARGV, 2 do
  -- `nx`: an entry that exists already has the exact time of this server.
  redis.call('zadd', KEYS[1], 'nx', string.format('%.3f', now - ARGV[index]), ARGV[index + 1])
end
redis.call('pexpire', KEYS[1], 61000)
return 1
