-- rate-limits/lua/take.lua Admits one request if fewer than the limit were admitted in the last 60
-- seconds, by this server's clock. KEYS: 1 log of the limit (sorted set: time in ms)  2 what has to
-- be there: mark that the logs are complete, or name of this memory ARGV: 1 limit  2 id of the
-- request  3 channel  4 message to it when admitted, or empty Answers {1 admitted | 0 refused | -1
-- it is not there, nothing done; entries with this one; ms until one more fits}
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
local leaving = redis.call('zrange', KEYS[1], used - limit, used - limit, 'withscores')
return {0, used, math.ceil(leaving[2] + 60000 - now)}
