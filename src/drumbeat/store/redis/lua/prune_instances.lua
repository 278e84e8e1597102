-- Deletes the records of instances that ended before a time.
-- KEYS: 1 the prefix
-- ARGV: 1 time (µs)
-- returns: how many
-- flags: allow-oom
-- include: _prelude
local ids = call('ZRANGEBYSCORE', P .. 'gone', '-inf', '(' .. ARGV[1])
for _, id in ipairs(ids) do
  call('ZREM', P .. 'gone', id)
  call('DEL', P .. 'inst:' .. id)
end
return #ids
