-- rate-limits/lua/join.lua
-- Heartbeat of a node. A server without data gets a new epoch, and loses it with its data.
-- KEYS: 1 epoch (an id and the time in ms at which it began)   ARGV: 1 id for a new epoch
-- Returns {epoch, its age in ms}
local time = redis.call('time')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('set', KEYS[1], ARGV[1] .. ' ' .. string.format('%.0f', now), 'nx')
local epoch = redis.call('get', KEYS[1])
return {epoch, math.max(0, now - tonumber(string.match(epoch, '%d+$')))}
