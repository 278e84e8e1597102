-- Gives the jobs of a line, which has got or lost its order, the scores of the other one, a few at a time. The line gives nothing until
-- all are done.
-- KEYS: 1 the prefix
-- ARGV: 1 queue, 2 line, 3 from which group on (a bound of ZRANGEBYLEX), 4 priority and 5 cursor within it, 6 limit
-- returns: 1 if all are done, else 0; and the next group's bound, priority and cursor
-- include: _lanes

local tools = lanes()
local line, from, priority, cursor, left = tools.line(ARGV[1], ARGV[2]), ARGV[3], tonumber(ARGV[4]), ARGV[5], tonumber(ARGV[6])

local function score_of(id, body, text)
  if line.order ~= '' then
    return tools.place_of(id, body)
  end
  return us(parse_live_state(text or nil, body or '').run_at)
end

-- Scores a page of one index; returns the next cursor.
local function score_page(key)
  local page = safe_read('ZSCAN', key, cursor, 'COUNT', 500) or {'0', {}}
  local ids, scores = {}, {}
  for i = 1, #page[2], 2 do
    ids[#ids + 1] = page[2][i]
  end
  local bodies, states = fetch('job:', ids), bulk_get('HMGET', P .. 'live_state', ids)
  for i, id in ipairs(ids) do
    append(scores, score_of(id, bodies[i], states[i]), id)
  end
  bulk('ZADD', key, scores)
  left = left - #ids - 1
  return page[1]
end

allow_adding_when_full()
while left > 0 and line.is_reordering do
  local group = tools.groups_of(line, from, 1)[1]
  if not group then
    call('HDEL', P .. 'line:' .. line.id, 'reordering')
    line.is_reordering = false
    break
  end
  local lane = tools.read_lanes(line, {group})[1]
  cursor = score_page(due_key(line.queue, priority, line.name .. ' ' .. group))
  if cursor == '0' then
    priority = priority + 1
  end
  if priority > 9 then
    tools.refresh(line, lane)
    if lane.head_at then
      lane.head_at, lane.has_news = math.min(lane.head_at, now), true
      tools.mark(line, lane)
    end
    from, priority = '(' .. group, 0
  end
end
flush_effects()
if not line.is_reordering then
  call('PUBLISH', P .. 'wake', now_text)
end
return {line.is_reordering and 0 or 1, from, priority, cursor}
