-- The rules of core/limits.py and core/lanes.py, line by line; tests/contract/test_rules_lanes.py compares them.
--
-- Bounds: concurrency, rate, per (µs), nil where nothing is limited. Starts: a list of {moment, how many}, oldest first. A lane
-- and a line have the fields of LaneState and LineState; the policy of a line is in the line itself (_lanes.lua). The functions are
-- made when they are first needed: a script without lanes does not pay for them.
-- include: _base

local rules_of_lanes = nil

local function lane_rules()
  if rules_of_lanes then
    return rules_of_lanes
  end
  local rules = {}
  rules_of_lanes = rules
  local MAX_STARTS, NO_LIMIT = 64, 2147483647
  rules.NO_LIMIT = NO_LIMIT

  function rules.drop_old_starts(bounds, starts)
    local kept = {}
    for _, each in ipairs(bounds.per and starts or {}) do
      if each[1] > now - bounds.per then
        kept[#kept + 1] = each
      end
    end
    return kept
  end

  local function sum(starts)
    local total = 0
    for _, each in ipairs(starts) do
      total = total + each[2]
    end
    return total
  end

  function rules.find_room(bounds, running, starts)
    local room = bounds.concurrency and math.max(0, bounds.concurrency - running) or NO_LIMIT
    if bounds.rate then
      room = math.min(room, math.max(0, bounds.rate - sum(rules.drop_old_starts(bounds, starts))))
    end
    return room
  end

  function rules.find_opening(bounds, starts)
    if not bounds.rate or not bounds.per then
      return 0
    end
    local counted = rules.drop_old_starts(bounds, starts)
    local left, opening = sum(counted), 0
    for _, each in ipairs(counted) do
      if left < bounds.rate then
        break
      end
      left, opening = left - each[2], each[1] + bounds.per
    end
    return opening
  end

  function rules.add_starts(bounds, starts, count)
    if not bounds.per then
      return {}
    end
    local kept = rules.drop_old_starts(bounds, starts)
    if count > 0 then
      kept[#kept + 1] = {math.max(now, #kept > 0 and kept[#kept][1] or now), count}
    end
    if #kept <= MAX_STARTS then
      return kept
    end
    local grid, merged = math.max(1, math.floor(bounds.per / MAX_STARTS)), {}
    for _, each in ipairs(kept) do
      local at, last = each[1] + (-each[1]) % grid, merged[#merged]
      if last and last[1] == at then
        last[2] = last[2] + each[2]
      else
        merged[#merged + 1] = {at, each[2]}
      end
    end
    return merged
  end

  -- When a lane is to be looked at; nil: not before something else happens to it.
  function rules.ready_at(lane)
    if not lane.head_at or lane.running >= lane.concurrency then
      return nil
    end
    return math.max(lane.head_at, lane.turn_at, lane.open_at)
  end

  function rules.bounds_of(lane, line)
    local bounds = lane.own_bounds or line.each
    return line.order == '' and bounds or {concurrency = 1, rate = bounds.rate, per = bounds.per}
  end

  function rules.find_lane_room(lane, line)
    return rules.find_room(rules.bounds_of(lane, line), lane.running, lane.starts)
  end

  function rules.weight_of(lane, line)
    return lane.own_weight or line.weights[lane.group] or 1
  end

  local function is_open(bounds)
    return not bounds.concurrency and not bounds.rate
  end

  function rules.is_limited(line, whole)
    return line.order ~= '' or not (is_open(line.each) and is_open(line.whole)) or not is_open(whole.whole)
  end

  function rules.find_line_room(line)
    return rules.find_room(line.whole, line.running, line.starts)
  end

  function rules.find_line_opening(line)
    if line.whole.concurrency and line.running >= line.whole.concurrency then
      return nil
    end
    return rules.find_opening(line.whole, line.starts)
  end

  -- Whose job is next, as a function: positions, job by job, then nil.
  local function turns_of(line, lanes)
    local rooms, counts, active = {}, {}, {}
    for i, lane in ipairs(lanes) do
      rooms[i] = rules.find_lane_room(lane, line)
      counts[i] = lane.credit > 0 and lane.credit or rules.weight_of(lane, line)
      if rooms[i] > 0 then
        active[#active + 1] = i
      end
    end
    local place, left = 0, 0
    return function()
      while left == 0 do
        local i = active[place]
        if i then
          counts[i] = rules.weight_of(lanes[i], line)
        end
        place = place + 1
        if place > #active then
          local still = {}
          for _, each in ipairs(active) do
            if rooms[each] > 0 then
              still[#still + 1] = each
            end
          end
          active, place = still, 1
          if #active == 0 then
            return nil
          end
        end
        left = math.min(counts[active[place]], rooms[active[place]])
      end
      local i = active[place]
      left, rooms[i] = left - 1, rooms[i] - 1
      return i
    end
  end

  -- lists: {line, lanes} of each line with ready lanes; whole: the line ''. Returns a list of {lane, wanted} for each; lanes that have no
  -- room, although they looked ready, are to be settled too.
  function rules.deal(lists, whole, places, slots)
    local queue_room, given, active = rules.find_line_room(whole), {}, {}
    local first = #lists > 0 and now % #lists or 0
    for n = 1, #lists do
      local list = lists[(first + n - 1) % #lists + 1]
      local shares, by_position = {}, {}
      for i, lane in ipairs(list.lanes) do
        if rules.find_lane_room(lane, list.line) == 0 then
          by_position[i] = {lane = lane, wanted = 0}
          shares[#shares + 1] = by_position[i]
        end
      end
      given[list] = shares
      active[n] = {
        list = list, turns = turns_of(list.line, list.lanes), shares = by_position,
        room = list.line.name == '' and NO_LIMIT or rules.find_line_room(list.line), is_limited = rules.is_limited(list.line, whole),
      }
    end
    while #active > 0 and places > 0 and queue_room > 0 do
      local still = {}
      for _, each in ipairs(active) do
        if places <= 0 or queue_room <= 0 then
          break
        end
        local at = each.room > 0 and not (each.is_limited and slots <= 0) and each.turns()
        if at then
          local share, shares = each.shares[at], given[each.list]
          if not share then
            share = {lane = each.list.lanes[at], wanted = 0}
            each.shares[at], shares[#shares + 1] = share, share
          end
          share.wanted = share.wanted + 1
          places, queue_room, each.room = places - 1, queue_room - 1, each.room - 1
          slots = slots - (each.is_limited and 1 or 0)
          still[#still + 1] = each
        end
      end
      active = still
    end
    local dealt = {}
    for n, list in ipairs(lists) do
      dealt[n] = given[list]
    end
    return dealt
  end

  function rules.settle(lane, line, wanted, got, next_at, levels, position)
    local bounds, credit, turn_at = rules.bounds_of(lane, line), 0, 0
    local starts = rules.add_starts(bounds, lane.starts, got)
    if line.fair then
      local weight = rules.weight_of(lane, line)
      local left = (lane.credit > 0 and lane.credit or weight) - got
      credit = left > 0 and left or left % weight
      if got < wanted or credit == 0 then
        credit, turn_at = 0, now + position
      else
        turn_at = lane.turn_at
      end
    end
    lane.running, lane.head_at, lane.turn_at, lane.open_at = lane.running + got, next_at, turn_at, rules.find_opening(bounds, starts)
    lane.starts, lane.credit, lane.levels, lane.concurrency = starts, credit, levels, bounds.concurrency or NO_LIMIT
  end

  function rules.start_line(line, count)
    line.running, line.starts = line.running + count, rules.add_starts(line.whole, line.starts, count)
  end

  return rules
end
