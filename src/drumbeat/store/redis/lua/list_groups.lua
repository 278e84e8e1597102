-- Lists groups of a line by name.
-- KEYS: 1 the prefix
-- ARGV: 1 queue, 2 line, 3 from which group on (a bound of ZRANGEBYLEX), 4 limit
-- returns: now, then what describe_lane says of each
-- include: _lane_counts

local line, found = lanes().line(ARGV[1], ARGV[2]), {now}
for _, lane in ipairs(lanes().read_lanes(line, lanes().groups_of(line, ARGV[3], ARGV[4]))) do
  found[#found + 1] = describe_lane(line, lane)
end
return found
