-- Claims jobs of lanes: core.lanes.deal says how many of each, then they are picked, then core.lanes.settle says what is left.
-- include: _lanes
-- include: _uniqueness

local lane_claims = nil
-- A call takes from at most as many lanes.
local MAX_LANES = 200
local function claims_of_lanes()
  if lane_claims then
    return lane_claims
  end
  local tools, claims = lanes(), {}
  local rules = tools.rules
  lane_claims = claims

  -- Moves due jobs of a lane to `picked`. Returns how many, when the next one is due (or nil), and the levels that have jobs left.
  local function pick_by_time(line, lane, name, wanted, picked)
    local got, next_at, levels = 0, nil, 0
    for priority = 0, 9 do
      local level = 2 ^ priority
      if math.floor(lane.levels / level) % 2 == 1 then
        local key = due_key(line.queue, priority, name)
        local found, taken, left = safe_read('ZRANGE', key, 0, us(wanted - got), 'WITHSCORES') or {}, 0, nil
        for i = 1, #found, 2 do
          local moment = tonumber(found[i + 1])
          if got < wanted and moment <= now then
            got, taken, picked[#picked + 1] = got + 1, taken + 1, found[i]
          else
            left = moment
            break
          end
        end
        if taken > 0 then
          call('ZREMRANGEBYRANK', key, 0, taken - 1)
        end
        if left then
          levels, next_at = levels + level, next_at and math.min(next_at, left) or left
        end
      end
    end
    return got, next_at, levels
  end

  -- Which of these jobs are due later: their run_at, by position.
  local function later_of(queue, ids)
    local found = bulk_get('ZMSCORE', P .. 'lane_later:' .. queue, ids)
    for i = 1, #ids do
      local moment = tonumber(found[i] or nil)
      found[i] = moment and moment > now and moment or nil
    end
    return found
  end

  -- Returns the first job of a level that may run, by its place: position, id and place; how many are behind it, as far as is known;
  -- and when the next one of those that are not due is.
  local MAX_STEPPED_OVER, STEP = 5000, 100
  local function first_of_level(line, key)
    local next_at, at = nil, 0
    repeat
      local found, ids = safe_read('ZRANGE', key, at, at + STEP - 1, 'WITHSCORES') or {}, {}
      for i = 1, #found, 2 do
        ids[#ids + 1] = found[i]
      end
      local later = later_of(line.queue, ids)
      for i, id in ipairs(ids) do
        if not later[i] then
          return {id = id, place = tonumber(found[2 * i]), key = key}, next_at
        end
        next_at = next_at and math.min(next_at, later[i]) or later[i]
        if line.order == 'hold' then
          return {id = id, place = tonumber(found[2 * i]), later = later[i]}, next_at
        end
      end
      at = at + STEP
    until #ids < STEP or at >= MAX_STEPPED_OVER
    if at >= MAX_STEPPED_OVER then
      next_at = math.min(next_at, now + 1000000)  -- what is behind was not looked at
    end
    return nil, next_at
  end

  -- The same for a line with an order: a lane runs one at a time, the first by its place whatever its priority.
  local function pick_by_place(line, lane, name, wanted, picked)
    local best, next_at, levels = nil, nil, 0
    for priority = 0, 9 do
      local level = 2 ^ priority
      if math.floor(lane.levels / level) % 2 == 1 then
        local key = due_key(line.queue, priority, name)
        local first, later = first_of_level(line, key)
        if first or later then
          levels = levels + level
        end
        if first and (not best or first.place < best.place or (first.place == best.place and is_smaller_id(first.id, best.id))) then
          best = first
        end
        next_at = later and (next_at and math.min(next_at, later) or later) or next_at
      end
    end
    if not best or best.later or wanted == 0 then
      return 0, best and (best.later or now) or next_at, levels
    end
    call('ZREM', best.key, best.id)
    picked[#picked + 1] = best.id
    -- Too early costs a look.
    local has_more, left = false, 0
    for priority = 0, 9 do
      local level = 2 ^ priority
      if math.floor(levels / level) % 2 == 1 and call('EXISTS', due_key(line.queue, priority, name)) == 1 then
        has_more, left = true, left + level
      end
    end
    return 1, has_more and best.place or nil, left
  end

  -- The ready lanes of the lines of a queue that have room and slots: {line, lanes} for each.
  function claims.look(queue, places, claim)
    if claim.lanes_left <= 0 then
      return {}
    end
    tools.write()
    if rules.find_line_room(tools.line(queue, '')) <= 0 then
      return {}
    end
    local lists, names, whole = {}, tools.lines_of(queue), tools.line(queue, '')
    local most = math.max(1, math.min(places, math.floor(claim.lanes_left / math.max(1, #names))))
    for _, name in ipairs(names) do
      local line = tools.line(queue, name)
      local may = line.is_declared and not line.is_reordering and (claim.slots > 0 or not rules.is_limited(line, whole))
      if may and (name == '' or rules.find_line_room(line) > 0) then
        local groups = safe_read('ZRANGEBYSCORE', P .. 'ready:' .. line.id, '-inf', now_text, 'LIMIT', 0, most) or {}
        if #groups > 0 then
          lists[#lists + 1] = {line = line, lanes = tools.read_lanes(line, groups)}
          claim.lanes_left = claim.lanes_left - #groups
        end
      end
    end
    return lists
  end

  -- Claims at most so many jobs of lanes of a queue, as `look` found them. `claim.places` are the lanes of picked jobs. Returns how many.
  function claims.pick(queue, lists, places, claim, picked)
    if #lists == 0 or places <= 0 then
      return 0
    end
    local whole = tools.line(queue, '')
    local dealt, got_all = rules.deal(lists, whole, places, claim.slots), 0
    for n, list in ipairs(lists) do
      local line, got_line = list.line, 0
      for position, share in ipairs(dealt[n]) do
        local lane, first = share.lane, #picked
        local name = line.name .. ' ' .. lane.group
        local by = line.order == '' and pick_by_time or pick_by_place
        local got, next_at, levels = by(line, lane, name, share.wanted, picked)
        rules.settle(lane, line, share.wanted, got, next_at, levels, position - 1 - #dealt[n])
        tools.mark(line, lane)
        local place = {queue = queue, name = name}
        for i = first + 1, #picked do
          claim.places[picked[i]] = place
        end
        got_line = got_line + got
      end
      if got_line > 0 then
        tools.start(line, got_line)
        got_all = got_all + got_line
        claim.slots = claim.slots - (rules.is_limited(line, whole) and got_line or 0)
      end
    end
    tools.write()
    return got_all
  end

  -- When lanes of a queue may give the next job, or nil; and whether some could now, if the claim had slots for them.
  function claims.next_at(queue, claim)
    tools.write()
    local first, has_limited, whole = nil, false, tools.line(queue, '')
    for _, name in ipairs(tools.lines_of(queue)) do
      local line = tools.line(queue, name)
      local at = tools.next_at(line)
      if at and at <= now and claim.slots <= 0 and rules.is_limited(line, whole) then
        has_limited = true
      elseif at then
        at = math.max(at, now)
        first = first and math.min(first, at) or at
      end
    end
    return first, has_limited
  end

  -- Forgets jobs whose time has come among those that are due later.
  function claims.tidy(queue)
    local old = safe_read('ZRANGEBYSCORE', P .. 'lane_later:' .. queue, '-inf', now_text, 'LIMIT', 0, CHUNK) or {}
    bulk('ZREM', P .. 'lane_later:' .. queue, old)
  end

  return claims
end
