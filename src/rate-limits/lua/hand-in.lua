-- rate-limits/lua/hand-in.lua
-- Adds to a log what a node admitted by itself. Repeating it changes nothing.
-- KEYS: 1 log of the limit   ARGV: 1 age in ms  2 id  3 age  4 id …
local time = redis.call('time')
local now = time[1] * 1000 + time[2] / 1000
for place = 1, #ARGV, 2 do
  -- Never moved: an entry that is there has this server's own time.
  redis.call('zadd', KEYS[1], 'nx', string.format('%.3f', now - ARGV[place]), ARGV[place + 1])
end
redis.call('pexpire', KEYS[1], 61000)
return 1
