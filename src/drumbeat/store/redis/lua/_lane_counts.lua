-- Pending jobs of lanes, for people.
-- include: _lanes

local MAX_LANES_READ = 1000
-- Lanes of a queue, as far as they are not too many: visit(line, lane). Returns whether these were all.
local function each_lane(queue, limit, visit)
  local tools = lanes()
  for _, name in ipairs(tools.lines_of(queue)) do
    local line = tools.line(queue, name)
    local groups = safe_read('ZRANGE', P .. 'lanes:' .. line.id, 0, limit) or {}
    if #groups > limit then
      -- Those that are not full, those with the oldest jobs first.
      groups = safe_read('ZRANGE', P .. 'ready:' .. line.id, 0, limit - 1) or {}
      limit = 0
    end
    for _, lane in ipairs(tools.read_lanes(line, groups)) do
      visit(line, lane)
    end
    if limit == 0 then
      return false
    end
    limit = limit - #groups
  end
  return true
end

-- Returns how many jobs of each lane run, by queue, NUL, line, and group.
local function count_lane_runs()
  local counted = {}
  for _, instance in ipairs(call('ZRANGE', P .. 'alive', 0, -1)) do
    for _, body in ipairs(fetch('job:', safe_read('ZRANGE', P .. 'held:' .. instance, 0, -1) or {})) do
      local lane = body and lane_of(body)
      local _, queue = match(lane and body or '', HEADER_PATTERN)
      if queue then
        local name, group = lanes().split(lane)
        local id = queue .. '\0' .. name
        counted[id] = counted[id] or {queue = queue, name = name, groups = {}}
        counted[id].groups[group] = (counted[id].groups[group] or 0) + 1
      end
    end
  end
  return counted
end

-- What people see of a lane: queue, line, group, running, head_at, open_at, own weight (false: none), starts and own bounds as they are
-- stored, how many wait.
local MAX_COUNTED = 10000
local function describe_lane(line, lane)
  local waiting, tools = 0, lanes()
  for priority = 0, 9 do
    if math.floor(lane.levels / 2 ^ priority) % 2 == 1 then
      waiting = waiting + (safe_read('ZCARD', due_key(line.queue, priority, line.name .. ' ' .. lane.group)) or 0)
    end
  end
  return {
    line.queue, line.name, lane.group, lane.running, lane.head_at or false, lane.open_at, lane.own_weight or false,
    tools.format_starts(lane.starts), lane.own_bounds and tools.format_bounds(lane.own_bounds) or '', math.min(waiting, MAX_COUNTED),
  }
end

-- Returns how many jobs of lanes a queue has pending, how many of these are due later, and about when the oldest was due (or nil):
-- of very many lanes those that are full are not looked at.
local function count_in_lanes(queue)
  local pending = tonumber(safe_read('HGET', P .. 'lane_pending', queue) or 0) or 0
  local later, first = 0, nil
  if pending > 0 then
    later = math.min(pending, safe_read('ZCOUNT', P .. 'lane_later:' .. queue, '(' .. now_text, '+inf') or 0)
    each_lane(queue, MAX_LANES_READ, function(_, lane)
      if lane.head_at and lane.head_at <= now and (not first or lane.head_at < first) then
        first = lane.head_at
      end
    end)
  end
  return pending, later, first
end

-- Returns ids of pending jobs of lanes: pending, ready or scheduled ones; nil if there are more, or very many lanes.
local MAX_LANES_SEARCHED = 10000
local function ids_in_lanes(queue, which, few)
  local later = safe_read('ZRANGEBYSCORE', P .. 'lane_later:' .. queue, '(' .. now_text, '+inf', 'LIMIT', 0, few + 1) or {}
  if which == 'scheduled' or #later > few then
    return #later <= few and later or nil
  end
  if (tonumber(safe_read('HGET', P .. 'lane_pending', queue) or 0) or 0) - (which == 'ready' and #later or 0) > few then
    return nil
  end
  local is_later, ids = {}, {}
  for _, id in ipairs(which == 'ready' and later or {}) do
    is_later[id] = true
  end
  local is_all = each_lane(queue, MAX_LANES_SEARCHED, function(line, lane)
    for priority = 0, 9 do
      if math.floor(lane.levels / 2 ^ priority) % 2 == 1 then
        for _, id in ipairs(safe_read('ZRANGE', due_key(queue, priority, line.name .. ' ' .. lane.group), 0, few) or {}) do
          if not is_later[id] then
            ids[#ids + 1] = id
          end
        end
      end
    end
  end)
  return is_all and ids or nil
end
