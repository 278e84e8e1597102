-- Lists the groups with the most running jobs, and those that have waited longest.
-- KEYS: 1 the prefix
-- ARGV: 1 how many of each; of those that wait, of each line
-- returns: now, then what describe_lane says of each, in no order
-- include: _lane_counts

local limit, found, running, seen = tonumber(ARGV[1]), {now}, {}, {}
for _, each in pairs(has_lanes() and count_lane_runs() or {}) do
  for group, number in pairs(each.groups) do
    running[#running + 1] = {line = lanes().line(each.queue, each.name), group = group, number = number}
  end
end
table.sort(running, function(one, other) return one.number > other.number end)

local function describe(line, group)
  local lane = lanes().read_lanes(line, {group})[1]
  if not seen[lane] and not lane.is_new then
    seen[lane], found[#found + 1] = true, describe_lane(line, lane)
  end
end

for i = 1, math.min(limit, #running) do
  describe(running[i].line, running[i].group)
end
for _, queue in ipairs(#running < limit and call('SMEMBERS', P .. 'lane_queues') or {}) do
  for _, name in ipairs(lanes().lines_of(queue)) do
    local line = lanes().line(queue, name)
    for _, group in ipairs(safe_read('ZRANGE', P .. 'ready:' .. line.id, 0, limit - 1) or {}) do
      describe(line, group)
    end
  end
end
return found
