-- Deletes the records of instances that ended before a time.
-- KEYS: 1 the prefix
-- ARGV: 1 time (µs)
-- returns: how many
-- flags: allow-oom
-- touches: gone, inst:<instance>
local p = KEYS[1]
local ids = redis.call('ZRANGEBYSCORE', p .. 'gone', '-inf', '(' .. ARGV[1])
for _, id in ipairs(ids) do
  redis.call('ZREM', p .. 'gone', id)
  redis.call('DEL', p .. 'inst:' .. id)
end
return #ids
