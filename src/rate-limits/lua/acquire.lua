-- rate-limits/lua/acquire.lua
-- Admits one request if fewer than the limit were admitted in the last 60 s by this server's clock.
-- KEYS: 1 window of the limit (sorted set: request id, scored by its admission time in ms)
--       2 epoch
-- ARGV: 1 limit  2 request id  3 epoch to which the node has sent its requests
-- Returns {1 admitted | 0 refused | -1 the epoch is another one and nothing was done,
--          requests in the window including this one, ms until one more fits}
if redis.call('get', KEYS[2]) ~= ARGV[3] then return {-1, 0, 0} end
local time = redis.call('time')
local now = time[1] * 1000 + time[2] / 1000
local limit = tonumber(ARGV[1])
redis.call('zremrangebyscore', KEYS[1], '-inf', string.format('%.3f', now - 60000))
local used = redis.call('zcard', KEYS[1])
if used < limit then
  redis.call('zadd', KEYS[1], string.format('%.3f', now), ARGV[2])
  redis.call('pexpire', KEYS[1], 61000)
  return {1, used + 1, 0}
end
-- One more fits once fewer than the limit remain.
local expiring = redis.call('zrange', KEYS[1], used - limit, used - limit, 'withscores')
return {0, used, math.ceil(expiring[2] + 60000 - now)}
