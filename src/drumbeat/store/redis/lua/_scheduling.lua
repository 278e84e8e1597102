-- What a schedule is in Redis, and how its line goes on when a job ends. All values are texts; '' stands for none.
--
-- The hash schedule:<name> has: definition (JSON of NewSchedule), task, queue, priority, head (of the bodies of its jobs, up to the
-- key), rest (of it, after the key, then a newline and args), overlap, every (the rule, with AFTER), end, origin, app; state, revision,
-- cursor, next_at, current (an id); created_at, changed_at, declared_at, by, why.
-- include: _base

local function plan_key(name)
  return P .. 'schedule:' .. name
end

-- These fields of a schedule by name; nil if there is none.
local function plan_of(name, ...)
  local values = ask('HMGET', plan_key(name), 'state', ...)
  if not values or not values[1] then
    return nil
  end
  local plan = {name = name, state = values[1]}
  for i, field in ipairs({...}) do
    plan[field] = values[i + 1] or ''
  end
  return plan
end

-- Writes next_at and current, and what is found by them. The plan has state, every, next_at and current.
local function keep_moment(plan)
  call('HSET', plan_key(plan.name), 'next_at', plan.next_at, 'current', plan.current)
  if tonumber(plan.next_at) then
    call('ZADD', P .. 'moments', plan.next_at, plan.name)
  else
    call('ZREM', P .. 'moments', plan.name)
  end
  if tonumber(plan.every) and plan.state == 'active' and plan.next_at == '' then
    call('ZADD', P .. 'intervals', plan.every, plan.name)
  elseif plan.every ~= '' then
    call('ZREM', P .. 'intervals', plan.name)
  end
end

local function is_live(id)
  local name = bucket(id)
  return ask('HEXISTS', P .. 'job:' .. name, id) == 1 and (ask('HEXISTS', P .. 'done:' .. name, id) or 0) == 0
end

-- One record of moments: kind 'f' (fired or queued) or 's' (skipped), the id of the job if there is one, and a JSON array
-- [at, last, how many, outcome, reason, recorded_at]. What is on record stays.
local function record_fire(name, kind, at, last, number, outcome, reason, id)
  local member = kind .. at
  if put('ZADD', P .. 'fires:' .. name, 'NX', at, member) == 0 then
    return
  end
  put('HSET', P .. 'records:' .. name, member, kind .. id .. '[' .. at .. ',' .. last .. ',' .. number .. ',"' .. outcome .. '",'
    .. cjson.encode(reason) .. ',' .. now_text .. ']')
  call('ZADD', P .. 'fired', last, member .. '\0' .. name)
end
