-- Lists the members of an index of workflows, in order.
-- KEYS: 1 the prefix
-- ARGV: 1 its name without the prefix, 2 up or down, 3 where to begin (as for ZRANGEBYLEX), 4 limit
-- returns: members
-- include: _prelude

local index = P .. ARGV[1]
if ARGV[2] == 'up' then
  return safe_read('ZRANGEBYLEX', index, ARGV[3], '+', 'LIMIT', 0, ARGV[4]) or {}
end
return safe_read('ZREVRANGEBYLEX', index, ARGV[3], '-', 'LIMIT', 0, ARGV[4]) or {}
