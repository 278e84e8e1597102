-- Counts jobs by the state that people see. Of jobs with a live state, a bounded number is examined for those that are retrying.
-- KEYS: 1 the prefix
-- ARGV: 1 how many to look at
-- returns: ready, all that are due later, retrying (of these), waiting, running, 1 if there may be more that are retrying;
-- then counters ("task NUL what" and how many, flat)
-- include: _base
-- include: _lane_counts

local ready, future, waiting, running, retrying, looked = 0, 0, 0, 0, 0, 0
for _, queue in ipairs(call('SMEMBERS', P .. 'queues')) do
  for priority = 0, 9 do
    local key = due_key(queue, priority)
    local size = safe_read('ZCARD', key) or 0
    if size > 0 then
      local due = call('ZCOUNT', key, '-inf', now_text)
      ready, future = ready + due, future + size - due
    end
  end
  if has_lanes() then
    local pending, later = count_in_lanes(queue)
    ready, future = ready + pending - later, future + later
  end
end
for _, number in ipairs(call('HVALS', P .. 'blocked_counts')) do
  waiting = waiting + (tonumber(number) or 0)
end
for _, instance in ipairs(call('ZRANGE', P .. 'alive', 0, -1)) do
  running = running + (safe_read('ZCARD', P .. 'held:' .. instance) or 0)
end

-- A running job was due when it was claimed, so a job that is due later is pending.
local cursor, seen = '0', {}
repeat
  local page = call('HSCAN', P .. 'live_state', cursor, 'COUNT', 500)
  cursor = page[1]
  for i = 1, #page[2], 2 do
    local run_at, failures, crashes = match(page[2][i + 1], '^(%-?%d+),%d+,(%d+),(%d+),')
    -- A scan may return one twice.
    if run_at and tonumber(run_at) > now and failures + crashes > 0 and not seen[page[2][i]]
      and parse_live_state(page[2][i + 1]).blocked_on == '' then
      seen[page[2][i]] = true
      retrying = retrying + 1
    end
  end
  looked = looked + #page[2] / 2
until cursor == '0' or looked >= tonumber(ARGV[1])
return {ready, future, retrying, waiting, running, cursor ~= '0' and 1 or 0, call('HGETALL', P .. 'count')}
