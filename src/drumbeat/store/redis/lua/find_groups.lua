-- Finds groups.
-- KEYS: 1 the prefix
-- ARGV: queue, line and group of each
-- returns: now, then for each what describe_lane says, or nothing
-- include: _lane_counts

local found = {now}
for i = 1, #ARGV, 3 do
  local line = lanes().line(ARGV[i], ARGV[i + 1])
  local lane = lanes().read_lanes(line, {ARGV[i + 2]})[1]
  found[#found + 1] = not lane.is_new and describe_lane(line, lane)
end
return found
