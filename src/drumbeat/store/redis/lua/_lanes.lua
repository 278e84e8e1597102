-- Lanes: the jobs of one group under the same limits (core/lanes.py), and lines, which have lanes.
--
-- A lane is a value of the hash lane:<queue>NUL<line>, by group:
--     running,head_at,turn_at,open_at,credit,levels,concurrency,own_weight,used_at (s)
--     starts as moment:number,moment:number ...
--     own bounds as concurrency,rate,per
-- Empty: none, or no limit; 0 for most. Its entry in `ready` follows from that: `write_lanes` writes both.
-- A line is the hash line:<queue>NUL<name>; its `rule` says what a claim needs of the policy:
--     concurrency,rate,per of the whole line; the same of each group; order,fair,weighted (1 or empty)
-- Weights of groups are in line_weights:<queue>NUL<line>. A line without a rule was not declared: it gives nothing.
--
-- A script works on tables, which are read when needed and written by flush_effects. The functions are made with the first use.
-- include: _base
-- include: _lane_rules

local lane_tools = nil
local function lanes()
  if lane_tools then
    return lane_tools
  end
  local rules, tools, lines, known, pending = lane_rules(), {}, {}, {}, {}
  local NO_LIMIT, may_add, names_of = rules.NO_LIMIT, false, {}
  lane_tools = tools
  -- How long a line gives nothing while its jobs get another order.
  local REORDERING_US = 50000

  local function split(lane)
    local line, group = match(lane, '^([^ ]*) (.*)$')
    return line or lane, group or ''
  end

  local function parse_bounds(text)
    local concurrency, rate, per = match(text, '^(%d*),(%d*),(%d*)$')
    return concurrency and {concurrency = tonumber(concurrency), rate = tonumber(rate), per = tonumber(per)}
  end

  local function format_bounds(bounds)
    local function text(number)
      return number and us(number) or ''
    end
    return text(bounds.concurrency) .. ',' .. text(bounds.rate) .. ',' .. text(bounds.per)
  end

  local function parse_starts(text)
    local found = {}
    for moment, number in string.gmatch(text or '', '(%d+):(%d+)') do
      found[#found + 1] = {tonumber(moment), tonumber(number)}
    end
    return found
  end

  local function format_starts(starts)
    local found = {}
    for i, each in ipairs(starts) do
      found[i] = us(each[1]) .. ':' .. us(each[2])
    end
    return table.concat(found, ',')
  end

  local LANE_PATTERN = '^(%-?%d+),(%-?%d*),(%d+),(%d+),(%d+),(%d+),(%d*),(%d*),(%d+)\n([^\n]*)\n([^\n]*)$'
  -- Returns a lane; one that cannot be read, or is not there, is empty. All levels are looked at if it cannot be read.
  local function parse_lane(text)
    local running, head_at, turn_at, open_at, credit, levels, concurrency, weight, used_at, starts, own = match(text or '', LANE_PATTERN)
    if not running then
      return {
        running = 0, head_at = text and now, turn_at = 0, open_at = 0, starts = {}, credit = 0, levels = text and 1023 or 0,
        concurrency = NO_LIMIT, used_at = 0, is_damaged = text ~= nil,
      }
    end
    return {
      running = tonumber(running), head_at = tonumber(head_at), turn_at = tonumber(turn_at), open_at = tonumber(open_at),
      starts = starts ~= '' and parse_starts(starts) or {}, credit = tonumber(credit), levels = tonumber(levels) % 1024,
      concurrency = tonumber(concurrency) or NO_LIMIT, own_weight = tonumber(weight), used_at = tonumber(used_at),
      own_bounds = own ~= '' and parse_bounds(own) or nil,
    }
  end

  local function format_lane(lane)
    return format('%.0f,%s,%.0f,%.0f,%.0f,%.0f,%s,%s,%.0f\n%s\n%s', lane.running, lane.head_at and us(lane.head_at) or '', lane.turn_at,
      lane.open_at, lane.credit, lane.levels, lane.concurrency < NO_LIMIT and us(lane.concurrency) or '',
      lane.own_weight and us(lane.own_weight) or '', lane.used_at, lane.starts[1] and format_starts(lane.starts) or '',
      lane.own_bounds and format_bounds(lane.own_bounds) or '')
  end

  function tools.line(queue, name)
    local id = queue .. '\0' .. name
    local line = lines[id]
    if not line then
      local found = safe_read('HMGET', P .. 'line:' .. id, 'rule', 'running', 'starts', 'reordering') or {}
      local whole, each, order, fair, weighted = match(
        found[1] or '', '^(%d*,%d*,%d*),(%d*,%d*,%d*),(%l*),(1?),(1?)$')
      line = {
        id = id, queue = queue, name = name, is_declared = whole ~= nil, whole = parse_bounds(whole or ',,'),
        each = parse_bounds(each or ',,'), order = order or '', fair = fair == '1', is_weighted = weighted == '1', weights = {},
        running = tonumber(found[2] or 0) or 0, starts = parse_starts(found[3]), is_reordering = found[4] == '1',
        lanes = {}, changed = {}, ends = 0, delta = 0,
      }
      line.was_running, lines[id], known[#known + 1] = line.running, line, line
    end
    return line
  end

  -- Returns lanes of a line; those that are not there are made with their first change.
  function tools.read_lanes(line, groups)
    local missing = {}
    for _, group in ipairs(groups) do
      if not line.lanes[group] then
        missing[#missing + 1] = group
      end
    end
    local texts = bulk_get('HMGET', P .. 'lane:' .. line.id, missing)
    local weights = line.is_weighted and bulk_get('HMGET', P .. 'line_weights:' .. line.id, missing) or {}
    for i, group in ipairs(missing) do
      local lane = parse_lane(texts[i] or nil)
      lane.group, lane.is_new = group, not texts[i]
      lane.entry = texts[i] and rules.ready_at(lane) or nil
      line.lanes[group], line.weights[group] = lane, tonumber(weights[i] or nil)
    end
    local found = {}
    for i, group in ipairs(groups) do
      found[i] = line.lanes[group]
    end
    return found
  end

  local function find(queue, lane)
    local name, group = split(lane)
    local line = tools.line(queue, name)
    return line, line.lanes[group] or tools.read_lanes(line, {group})[1]
  end

  -- Reads lanes that will be needed, together. places: a list of {queue, lane}.
  function tools.prepare(places)
    local groups = {}
    for _, place in ipairs(places) do
      local name, group = split(place[2])
      local line = tools.line(place[1], name)
      groups[line] = groups[line] or {}
      groups[line][#groups[line] + 1] = group
    end
    for line, its in pairs(groups) do
      tools.read_lanes(line, its)
    end
  end

  -- A changed lane is written at the end, or before a claim looks.
  function tools.mark(line, lane)
    lane.used_at = math.floor(now / 1000000)
    line.changed[lane.group] = lane
  end

  -- The only function that writes lanes.
  function tools.write_lanes(line)
    local texts, ready, gone, new, n, m = {}, {}, {}, {}, 0, 0
    for group, lane in pairs(line.changed) do
      texts[n + 1], texts[n + 2] = group, format_lane(lane)
      n = n + 2
      local at = rules.ready_at(lane)
      if at and (at ~= lane.entry or lane.is_damaged) then
        ready[m + 1], ready[m + 2] = us(at), group
        m = m + 2
      elseif not at and (lane.entry or lane.is_damaged) then
        gone[#gone + 1] = group
      end
      if lane.is_new then
        new[#new + 1] = '0'
        new[#new + 1] = group
      end
      lane.entry, lane.is_new, lane.is_damaged = at, false, false
    end
    if #texts == 0 then
      return
    end
    if not may_add then
      allow_adding_when_full()  -- an enqueue was refused before
      may_add = true
    end
    bulk('HSET', P .. 'lane:' .. line.id, texts)
    bulk('ZADD', P .. 'ready:' .. line.id, ready)
    bulk('ZREM', P .. 'ready:' .. line.id, gone)
    if #new > 0 then
      bulk('ZADD', P .. 'lanes:' .. line.id, new)
      safe_write('ZADD', P .. 'lines:' .. line.queue, 0, line.name)
      names_of[line.queue] = nil
      safe_write('SADD', P .. 'lane_queues', line.queue)
    end
    line.changed = {}
  end

  function tools.write()
    for _, line in ipairs(known) do
      tools.write_lanes(line)
    end
  end

  local function write_counts()
    for _, line in ipairs(known) do
      if line.delta ~= 0 then
        safe_read('HINCRBY', P .. 'line:' .. line.id, 'running', us(line.delta))
        line.delta = 0
      end
      if line.has_new_starts then
        safe_write('HSET', P .. 'line:' .. line.id, 'starts', format_starts(line.starts))
        line.has_new_starts = false
      end
    end
    for queue, delta in pairs(pending) do
      -- A damaged counter starts again.
      if delta ~= 0 and safe_write('HINCRBY', P .. 'lane_pending', queue, us(delta)) <= 0 then
        call('HDEL', P .. 'lane_pending', queue)
      end
    end
    pending = {}
  end

  function tools.count_pending(queue, delta)
    pending[queue] = (pending[queue] or 0) + delta
  end

  -- The place of a job in a lane with an order: when it was enqueued, or replayed.
  function tools.place_of(id, body)
    local place = tonumber(safe_read('HGET', P .. 'lane_places', id) or nil)
    return place and us(place) or match(body or '', '^.%[(%-?%d+)') or now_text
  end

  -- Jobs of a lane become pending, or due earlier. list: run_at and id of jobs of one priority, flat; place(id): of a line with an order.
  function tools.enter(queue, lane, priority, list, place)
    local line, its = find(queue, lane)
    local scores, later, soon, first, added = {}, {}, {}, nil, 0
    for i = 1, #list, 2 do
      local run_at, id = tonumber(list[i]), list[i + 1]
      first = first and math.min(first, run_at) or run_at
      scores[i], scores[i + 1] = line.order ~= '' and place(id) or list[i], id
      if run_at > now then
        append(later, list[i], id)
      else
        soon[#soon + 1] = id
      end
    end
    for at = 1, #scores, CHUNK do
      added = added + safe_write('ZADD', due_key(queue, priority, lane), unpack(scores, at, math.min(at + CHUNK - 1, #scores)))
    end
    bulk('ZADD', P .. 'lane_later:' .. queue, later)
    if added < #scores / 2 then  -- they were there, and may have been due later
      bulk('ZREM', P .. 'lane_later:' .. queue, soon)
    end
    tools.count_pending(queue, added)
    its.head_at = its.head_at and math.min(its.head_at, first) or first
    local level = 2 ^ tonumber(priority)
    its.levels = its.levels + (math.floor(its.levels / level) % 2 == 0 and level or 0)
    its.has_news = true
    tools.mark(line, its)
  end

  -- A pending job leaves its lane otherwise than by a claim. The next look finds out.
  function tools.drop(queue, lane, priority, id)
    if safe_write('ZREM', due_key(queue, priority, lane), id) == 1 then
      tools.count_pending(queue, -1)
      safe_write('ZREM', P .. 'lane_later:' .. queue, id)
    end
  end

  -- Runs of jobs of a lane have ended, in any way.
  function tools.leave(queue, lane, number)
    local line, its = find(queue, lane)
    its.has_news = its.has_news or its.running >= its.concurrency
    its.running = its.running - number
    tools.mark(line, its)
    local whole = tools.line(queue, '')
    for _, each in ipairs(line == whole and {line} or {line, whole}) do
      each.running, each.delta, each.ends = each.running - number, each.delta - number, each.ends + number
    end
  end

  -- Jobs of a lane were claimed.
  function tools.start(line, number)
    local whole = tools.line(line.queue, '')
    for _, each in ipairs(line == whole and {line} or {line, whole}) do
      rules.start_line(each, number)
      each.delta, each.has_new_starts = each.delta + number, each.whole.per ~= nil
    end
    tools.count_pending(line.queue, -number)
  end

  function tools.lines_of(queue)
    names_of[queue] = names_of[queue] or safe_read('ZRANGE', P .. 'lines:' .. queue, 0, -1) or {}
    return names_of[queue]
  end

  -- When a line may give a job: 0 now, nil not before a run ends.
  function tools.opening_of(line)
    if not line.is_declared then
      return nil
    end
    if line.is_reordering then
      return now + REORDERING_US
    end
    local own = line.name == '' and 0 or rules.find_line_opening(line)
    local whole = rules.find_line_opening(tools.line(line.queue, ''))
    return own and whole and math.max(own, whole)
  end

  -- When the next lane of a line may give a job, or nil. The lanes must be written.
  function tools.next_at(line)
    local opening = tools.opening_of(line)
    local first = opening and safe_read('ZRANGE', P .. 'ready:' .. line.id, 0, 0, 'WITHSCORES') or {}
    return first[2] and math.max(tonumber(first[2]), opening)
  end

  local function was_full(line)
    local limit = line.whole.concurrency
    return limit and line.ends > 0 and line.was_running >= limit and line.running < limit
  end

  -- When lanes that this script has made ready may give a job, by queue. Writes all lanes.
  function tools.news()
    tools.write()
    local soonest_of, freed = {}, {}
    local function tell(queue, at)
      if at and (not soonest_of[queue] or at < soonest_of[queue]) then
        soonest_of[queue] = at
      end
    end
    for _, line in ipairs(known) do
      local opening = tools.opening_of(line)
      for _, lane in pairs(line.lanes) do
        local at = opening and lane.has_news and rules.ready_at(lane)
        tell(line.queue, at and math.max(at, opening))
      end
      if was_full(line) then
        freed[#freed + 1] = line
      end
    end
    for _, line in ipairs(freed) do
      for _, name in ipairs(line.name == '' and tools.lines_of(line.queue) or {line.name}) do
        tell(line.queue, tools.next_at(tools.line(line.queue, name)))
      end
    end
    return soonest_of
  end

  lane_effects = function()
    write_counts()
    for _, at in pairs(tools.news()) do
      wake_at(math.max(at, now))
    end
  end

  -- Brings a lane under the limits of its line as they are now.
  function tools.refresh(line, lane)
    local bounds = rules.bounds_of(lane, line)
    local concurrency, open_at = bounds.concurrency or NO_LIMIT, rules.find_opening(bounds, lane.starts)
    if concurrency ~= lane.concurrency or open_at ~= lane.open_at then
      lane.concurrency, lane.open_at, lane.has_news = concurrency, open_at, true
      tools.mark(line, lane)
    end
  end

  -- Groups of a line by name, from a bound of ZRANGEBYLEX on.
  function tools.groups_of(line, from, limit)
    return safe_read('ZRANGEBYLEX', P .. 'lanes:' .. line.id, from, '+', 'LIMIT', 0, limit) or {}
  end

  tools.parse_bounds, tools.format_bounds, tools.format_starts, tools.split, tools.rules = parse_bounds, format_bounds, format_starts, split, rules
  return tools
end
