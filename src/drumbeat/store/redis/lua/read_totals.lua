-- Reads all counters since the beginning.
-- KEYS: 1 the prefix
-- ARGV: none
-- returns: the sums of ended instances, then what each of the others has counted; each a hash as a flat list
-- include: _prelude
local found = {call('HGETALL', P .. 'folded')}
for _, instance in ipairs(call('ZRANGE', P .. 'totals', 0, -1)) do
  append(found, safe_read('HGETALL', P .. 'totals:' .. instance) or {})
end
return found
