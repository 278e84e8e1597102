-- Brings lanes of a line under its limits as they are now, and wakes workers where that makes them ready.
-- KEYS: 1 the prefix
-- ARGV: 1 queue, 2 line, 3 from which group on (a bound of ZRANGEBYLEX), 4 limit
-- returns: how many lanes there were, and the last one
-- include: _lanes

local line = lanes().line(ARGV[1], ARGV[2])
local groups = lanes().groups_of(line, ARGV[3], ARGV[4])
for _, lane in ipairs(lanes().read_lanes(line, groups)) do
  lanes().refresh(line, lane)
end
flush_effects()
return {#groups, groups[#groups] or ''}
