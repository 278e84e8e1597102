-- Reads intervals, a page at a time.
-- KEYS: 1 the prefix
-- ARGV: 1 resolution, 2 since (µs), 3 until (µs, exclusive), 4 limit, 5 interval or interval_total
-- returns: at, and its hash as a flat list, of each in order
-- include: _prelude
local found = {}
local index = P .. 'intervals_of:' .. ARGV[1]
for _, at in ipairs(call('ZRANGEBYSCORE', index, ARGV[2], '(' .. ARGV[3], 'LIMIT', 0, ARGV[4])) do
  append(found, at, safe_read('HGETALL', P .. ARGV[5] .. ':' .. ARGV[1] .. ':' .. at) or {})
end
return found
