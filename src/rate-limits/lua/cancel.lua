-- rate-limits/lua/cancel.lua
-- Removes a request whose place was returned, or that its node refused because the answer to
-- `acquire` came too late: the window may already contain it.
-- KEYS: 1 window of the limit   ARGV: 1 request id
return redis.call('zrem', KEYS[1], ARGV[1])
