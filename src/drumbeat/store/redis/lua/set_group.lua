-- Sets the exceptions of a group.
-- KEYS: 1 the prefix
-- ARGV: 1 queue, 2 line, 3 group, 4 bounds and 5 weight of its own, each '' for none
-- returns: 1, or 0 if there is no such line
-- include: _lanes

local line = lanes().line(ARGV[1], ARGV[2])
if not line.is_declared then
  return 0
end
local lane = lanes().read_lanes(line, {ARGV[3]})[1]
lane.own_bounds, lane.own_weight = lanes().parse_bounds(ARGV[4]), tonumber(ARGV[5])
lanes().mark(line, lane)
lanes().refresh(line, lane)
flush_effects()
return 1
