-- How a schedule is stored. All values are texts; '' stands for none.
--
-- The hash schedule:<name> has: definition (JSON of NewSchedule), task, queue, priority, head (of the bodies of its jobs, up to the
-- key), rest (of it, after the key, then a newline and args), overlap, every (the rule, with AFTER), end, origin, app; state, revision,
-- cursor, next_at, current (an id); created_at, changed_at, declared_at, by, reason.
-- include: _base

local function schedule_key(name)
  return P .. 'schedule:' .. name
end

-- Loads these fields of a schedule by name; nil if there is no such schedule.
local function load_schedule(name, ...)
  local values = safe_read('HMGET', schedule_key(name), 'state', ...)
  if not values or not values[1] then
    return nil
  end
  local schedule = {name = name, state = values[1]}
  for i, field in ipairs({...}) do
    schedule[field] = values[i + 1] or ''
  end
  return schedule
end

-- Returns the fields of a schedule as schedules.py decodes them; the first is false if there is no such schedule.
local function schedule_fields(name)
  return safe_read('HMGET', schedule_key(name), 'definition', 'state', 'revision', 'cursor', 'next_at', 'current', 'created_at',
    'changed_at', 'declared_at', 'by', 'reason') or {false}
end

-- Writes next_at and current with their indexes. The schedule has state, every, next_at and current.
local function save_next_fire(schedule)
  call('HSET', schedule_key(schedule.name), 'next_at', schedule.next_at, 'current', schedule.current)
  if tonumber(schedule.next_at) then
    call('ZADD', P .. 'next_fires', schedule.next_at, schedule.name)
  else
    call('ZREM', P .. 'next_fires', schedule.name)
  end
  if tonumber(schedule.every) and schedule.state == 'active' and schedule.next_at == '' then
    call('ZADD', P .. 'intervals', schedule.every, schedule.name)
  elseif schedule.every ~= '' then
    call('ZREM', P .. 'intervals', schedule.name)
  end
end

local function is_job_live(id)
  local name = bucket(id)
  return safe_read('HEXISTS', P .. 'job:' .. name, id) == 1 and (safe_read('HEXISTS', P .. 'ended:' .. name, id) or 0) == 0
end

-- Records fires: kind 'f' (fired or queued) or 's' (skipped), the job's id if there is one, and a JSON array
-- [at, last, count, outcome, reason, recorded_at]. An existing record is kept.
local function record_fire(name, kind, at, last, number, outcome, reason, id)
  local member = kind .. at
  if safe_write('ZADD', P .. 'fires:' .. name, 'NX', at, member) == 0 then
    return
  end
  safe_write('HSET', P .. 'fire_records:' .. name, member, kind .. id .. '[' .. at .. ',' .. last .. ',' .. number .. ',"' .. outcome .. '",'
    .. cjson.encode(reason) .. ',' .. now_text .. ']')
  call('ZADD', P .. 'fires_by_time', last, member .. '\0' .. name)
end
