-- Returns the leader.
-- KEYS: 1 the prefix
-- ARGV: none
-- returns: instance, term, since, until; nothing if there is none
local found = redis.call('HMGET', KEYS[1] .. 'leader', 'instance', 'term', 'since', 'until')
local time = redis.call('TIME')
if not found[1] or (tonumber(found[4]) or 0) <= time[1] * 1000000 + time[2] then return false end
return found
