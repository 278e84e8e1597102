-- Deletes the oldest records of fires.
-- KEYS: 1 the prefix
-- ARGV: 1 whose last fire time was before this (µs), 2 limit
-- returns: how many
-- flags: allow-oom
-- include: _schedule

local old = call('ZRANGEBYSCORE', P .. 'fires_by_time', '-inf', '(' .. ARGV[1], 'LIMIT', 0, ARGV[2])
for _, each in ipairs(old) do
  local stop = find(each, '\0', 1, true) or #each + 1
  local member, name = sub(each, 1, stop - 1), sub(each, stop + 1)
  call('ZREM', P .. 'fires_by_time', each)
  safe_write('ZREM', P .. 'fires:' .. name, member)
  safe_write('HDEL', P .. 'fire_records:' .. name, member)
end
return #old
