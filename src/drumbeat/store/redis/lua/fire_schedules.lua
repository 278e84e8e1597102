-- Fires schedules, each one all or nothing. The rules of overlap are those of core/overlap.py.
-- KEYS: 1 the prefix
-- ARGV: for each: name, 1 if it advances or 0, revision, expected cursor, cursor, next_at ('' for none), number of fires, then of each:
-- at, run_at, id; number of skipped ranges, then of each: first, last, count, reason
-- returns: 1 if releases are left, else 0; then for each 0 (refused), or how many fires were skipped and the ids of the new jobs
-- include: _dependencies

local at = 0
local function arg()
  at = at + 1
  return ARGV[at]
end

local function read_firing()
  local firing = {name = arg(), moves = arg() == '1', revision = arg(), before = arg(), cursor = arg(), next_at = arg()}
  firing.fires, firing.skipped = {}, {}
  for i = 1, tonumber(arg()) do
    firing.fires[i] = {at = arg(), run_at = arg(), id = arg()}
  end
  for i = 1, tonumber(arg()) do
    firing.skipped[i] = {first = arg(), last = arg(), number = arg(), reason = arg()}
  end
  return firing
end

local function enqueue(schedule, planned, waits)
  local id, name = planned.id, bucket(planned.id)
  local body = '-[' .. now_text .. ',' .. planned.at .. ',' .. schedule.head .. 'null' .. schedule.rest
  safe_write('HSET', P .. 'job:' .. name, id, body)
  safe_write('RPUSH', P .. 'ids:' .. name, id)
  call('ZADD', P .. 'buckets', tonumber(name, 16), name)
  add_to_counter(schedule.task, 'live', 1)
  local header = decode_header(body)
  local expiry, lane = header[15], lane_of_header(header)
  if lane then
    note_lanes(schedule.queue)
  end
  note_expiry(id, type(expiry) == 'string' and expiry_time(expiry, tonumber(planned.at)) or nil)
  if waits or lane or planned.run_at ~= planned.at then
    make_pending({id = id, body = body, lane = lane, queue = schedule.queue, priority = schedule.priority, more = {
      run_at = tonumber(planned.run_at), token = 0, failures = 0, crashes = 0, replays = 0, error = '',
      blocked_on = waits and 'schedule:' .. schedule.name or '', blocked_since = waits and now or nil,
    }})
  else
    safe_write('ZADD', due_key(schedule.queue, schedule.priority), planned.run_at, id)
    call('SADD', P .. 'queues', schedule.queue)
    wake_at(tonumber(planned.run_at))
  end
  if not waits then
    schedule.current = id
  end
  record_fire(schedule.name, 'f', planned.at, planned.at, '1', waits and 'queued' or 'fired', '', id)
end

-- Cancels blocked jobs and the current job; returns true if the current one has to stop first.
local function cancel_before(schedule, live)
  for _, id in ipairs(safe_read('ZRANGE', P .. 'blocked_since:schedule:' .. schedule.name, 0, -1) or {}) do
    cancel_job(id)
  end
  if live == 'pending' then
    -- Its end must not start another.
    call('HSET', schedule_key(schedule.name), 'current', '')
  end
  if live then
    cancel_job(schedule.current)
  end
  return live == 'running'
end

-- Records new fires; returns the ids of their jobs.
local function fire(schedule, fires)
  local job = schedule.current ~= '' and find_job(schedule.current)
  local live, ids = job and not job.done and job.state or nil, {}
  schedule.was_live = live ~= nil
  local waits = schedule.overlap == 'cancel' and #fires > 0 and cancel_before(schedule, live)
  for i, planned in ipairs(fires) do
    local is_enqueued = not live or schedule.overlap == 'allow' or schedule.overlap == 'queue'
    if schedule.overlap == 'cancel' then
      is_enqueued = i == #fires
    end
    if is_enqueued then
      enqueue(schedule, planned, waits or (live and schedule.overlap == 'queue'))
      append(ids, planned.id)
      live = live or 'pending'
    else
      record_fire(schedule.name, 's', planned.at, planned.at, '1', 'skipped', 'overlap', '')
    end
  end
  return ids
end

-- Returns nil if refused.
local function fire_schedule(firing)
  local schedule = load_schedule(firing.name, 'revision', 'cursor', 'next_at', 'current', 'task', 'queue', 'priority', 'head', 'rest',
    'overlap', 'every')
  if not schedule or schedule.state ~= 'active' then
    return nil
  end
  -- The template of its jobs.
  if not match('-[0,0,' .. schedule.head, HEADER_PATTERN) or schedule.rest == '' or schedule.queue == '' or not match(schedule.priority, '^%d$') then
    return nil
  end
  if firing.moves and (schedule.revision ~= firing.revision or schedule.cursor ~= firing.before) then
    return nil
  end
  local new, seen = {}, {}
  for _, planned in ipairs(firing.fires) do
    if not seen[planned.at] and not safe_read('ZSCORE', P .. 'fires:' .. schedule.name, 'f' .. planned.at) then
      seen[planned.at] = true
      new[#new + 1] = planned
    end
  end
  local before = schedule.current
  local ids = fire(schedule, new)
  for _, each in ipairs(firing.skipped) do
    record_fire(schedule.name, 's', each.first, each.last, each.number, 'skipped', each.reason, '')
  end
  if firing.moves then
    call('HSET', schedule_key(schedule.name), 'cursor', firing.cursor)
    local is_busy = schedule.every ~= '' and (schedule.was_live or schedule.current ~= before)
    schedule.next_at = is_busy and '' or firing.next_at
  end
  save_next_fire(schedule)
  return ids
end

check_if_full()
local answers = {}
while at < #ARGV do
  local firing = read_firing()
  local ids = fire_schedule(firing)
  answers[#answers + 1] = ids and {#firing.fires - #ids, unpack(ids)} or 0
end
local is_releasing = advance()
flush_effects()
return {is_releasing, answers}
