-- Reads all counters since the beginning.
-- KEYS: 1 the prefix
-- ARGV: none
-- returns: the sums of ended instances, then what each of the others has counted; each a hash as a flat list
local found = {redis.call('HGETALL', KEYS[1] .. 'folded')}
for _, instance in ipairs(redis.call('ZRANGE', KEYS[1] .. 'totals', 0, -1)) do
  local totals = redis.pcall('HGETALL', KEYS[1] .. 'totals:' .. instance)
  found[#found + 1] = totals.err and {} or totals
end
return found
