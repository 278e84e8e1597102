-- Removes an instance from its rooms: it gets no more messages.
-- KEYS: 1 the prefix
-- ARGV: 1 instance
-- returns: 1, or 0 if it is not known
-- flags: allow-oom
-- touches: inst:<instance>
local key = KEYS[1] .. 'inst:' .. ARGV[1]
if redis.call('EXISTS', key) == 0 then return 0 end
redis.call('HSET', key, 'left_rooms', 1)
return 1
