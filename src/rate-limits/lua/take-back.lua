-- rate-limits/lua/take-back.lua
-- Removes a request that was refused although it may stand in the log: its answer came too late.
-- KEYS: 1 log of the limit   ARGV: 1 id
return redis.call('zrem', KEYS[1], ARGV[1])
