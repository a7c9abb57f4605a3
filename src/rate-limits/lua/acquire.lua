-- rate-limits/lua/acquire.lua
-- Admits one request if fewer than the limit were admitted in the last 60 s by this server's clock.
-- KEYS: 1 window of the limit (sorted set: request id, scored by its admission time in ms)
--       2 key that must exist: the synced mark, or the epoch
-- ARGV: 1 limit  2 request id  3 overage channel  4 message to publish if admitted, or empty
-- Returns {1 admitted | 0 refused | -1 KEYS[2] is absent and nothing was done,
--          requests in the window including this one, ms until one more fits}
if redis.call('exists', KEYS[2]) == 0 then return {-1, 0, 0} end
local time = redis.call('time')
local now = time[1] * 1000 + time[2] / 1000
local limit = tonumber(ARGV[1])
redis.call('zremrangebyscore', KEYS[1], '-inf', string.format('%.3f', now - 60000))
local used = redis.call('zcard', KEYS[1])
if used < limit then
  redis.call('zadd', KEYS[1], string.format('%.3f', now), ARGV[2])
  redis.call('pexpire', KEYS[1], 61000)
  if ARGV[4] ~= '' then redis.call('publish', ARGV[3], ARGV[4]) end
  return {1, used + 1, 0}
end
-- One more fits once fewer than the limit remain.
local expiring = redis.call('zrange', KEYS[1], used - limit, used - limit, 'withscores')
return {0, used, math.ceil(expiring[2] + 60000 - now)}
