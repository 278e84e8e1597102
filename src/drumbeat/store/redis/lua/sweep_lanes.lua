-- Deletes idle lanes, and corrects what has drifted: counts of running jobs, and what says when lanes are ready.
-- KEYS: 1 the prefix
-- ARGV: 1 last used before this (µs), 2 how many lanes to look at, 3 queue, 4 line and 5 group (a bound of ZRANGEBYLEX) to go on from
-- returns: how many were looked at, deleted and corrected; queue, line and bound to go on from ('' at the end)
-- flags: allow-oom
-- include: _lane_counts
-- include: _uniqueness

local tools, idle_before, limit = lanes(), tonumber(ARGV[1]), tonumber(ARGV[2])
local queue_from, name_from, from = ARGV[3], ARGV[4], ARGV[5]
local looked, deleted, corrected = 0, 0, 0

local function has_jobs(line, lane)
  local keys = {}
  for priority = 0, 9 do
    keys[priority + 1] = due_key(line.queue, priority, line.name .. ' ' .. lane.group)
  end
  return call('EXISTS', unpack(keys)) > 0
end

local function is_idle(line, lane)
  local bounds = tools.rules.bounds_of(lane, line)
  return lane.running == 0 and not lane.own_bounds and not lane.own_weight and lane.used_at * 1000000 < idle_before
    and #tools.rules.drop_old_starts(bounds, lane.starts) == 0
end

-- Returns whether anything was wrong.
local function correct(line, lane, running, entry, is_waiting)
  local is_right = lane.running == running and not lane.is_damaged and (lane.head_at or not is_waiting)
    and tonumber(entry or nil) == tools.rules.ready_at(lane)
  if is_right then
    return false
  end
  lane.running, lane.is_damaged, lane.has_news = running, true, true
  if is_waiting and not lane.head_at then
    lane.head_at, lane.levels = now, 1023
  end
  tools.mark(line, lane)
  return true
end

local function sweep(line, groups, runs)
  local entries, gone = bulk_get('ZMSCORE', P .. 'ready:' .. line.id, groups), {}
  for i, lane in ipairs(tools.read_lanes(line, groups)) do
    local is_waiting = has_jobs(line, lane)
    if correct(line, lane, runs[lane.group] or 0, entries[i], is_waiting) then
      corrected = corrected + 1
    elseif not is_waiting and is_idle(line, lane) then
      gone[#gone + 1] = lane.group
    else
      tools.refresh(line, lane)
    end
  end
  bulk('HDEL', P .. 'lane:' .. line.id, gone)
  bulk('ZREM', P .. 'ready:' .. line.id, gone)
  bulk('ZREM', P .. 'lanes:' .. line.id, gone)
  looked, deleted = looked + #groups, deleted + #gone
end

local function correct_line(line, running)
  if line.running ~= running then
    line.delta, line.running, corrected = running - line.running, running, corrected + 1
  end
end

local runs, queues = count_lane_runs(), call('SMEMBERS', P .. 'lane_queues')
table.sort(queues, is_smaller_id)
local next_queue, next_name, next_from = '', '', ''
for _, queue in ipairs(queues) do
  local total = 0
  for _, name in ipairs(tools.lines_of(queue)) do
    local line, its = tools.line(queue, name), runs[queue .. '\0' .. name]
    local number = 0
    for _, each in pairs(its and its.groups or {}) do
      number = number + each
    end
    total = total + number
    if name ~= '' then
      correct_line(line, number)
    end
    local is_before = is_smaller_id(queue, queue_from) or (queue == queue_from and is_smaller_id(name, name_from))
    if not is_before and next_from == '' then
      local is_first = queue == queue_from and name == name_from and from ~= ''
      local groups = looked < limit and tools.groups_of(line, is_first and from or '-', limit - looked) or {}
      sweep(line, groups, its and its.groups or {})
      if looked >= limit then
        next_queue, next_name, next_from = queue, name, #groups > 0 and '(' .. groups[#groups] or '-'
      end
    end
  end
  correct_line(tools.line(queue, ''), total)
end
flush_effects()
return {looked, deleted, corrected, next_queue, next_name, next_from}
