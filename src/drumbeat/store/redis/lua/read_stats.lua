-- Reads intervals, a page at a time.
-- KEYS: 1 the prefix
-- ARGV: 1 resolution, 2 since (µs), 3 until (µs, exclusive), 4 limit, 5 interval or interval_total
-- returns: at, and its hash as a flat list, of each in order
local found = {}
local range = {ARGV[2], '(' .. ARGV[3], 'LIMIT', 0, ARGV[4]}
for _, at in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1] .. 'intervals_of:' .. ARGV[1], unpack(range))) do
  found[#found + 1] = at
  local stretch = redis.pcall('HGETALL', KEYS[1] .. ARGV[5] .. ':' .. ARGV[1] .. ':' .. at)
  found[#found + 1] = stretch.err and {} or stretch
end
return found
