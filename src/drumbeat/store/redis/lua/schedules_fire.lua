-- Fires schedules: of each by itself, all that is asked for, or nothing. The rules of overlap are those of store/scheduled.py.
-- KEYS: 1 the prefix
-- ARGV: for each: name, 1 if it moves or 0, revision, cursor before, cursor, next_at ('' for none), number of moments, then of each:
-- at, run_at, id; number of skipped stretches, then of each: first, last, how many, reason
-- returns: for each 0 (refused), or how many moments were not fired and the ids of the jobs that were made
-- include: _places

local at = 0
local function arg()
  at = at + 1
  return ARGV[at]
end

local function read_firing()
  local firing = {name = arg(), moves = arg() == '1', revision = arg(), before = arg(), cursor = arg(), next_at = arg()}
  firing.moments, firing.skipped = {}, {}
  for i = 1, tonumber(arg()) do
    firing.moments[i] = {at = arg(), run_at = arg(), id = arg()}
  end
  for i = 1, tonumber(arg()) do
    firing.skipped[i] = {first = arg(), last = arg(), number = arg(), reason = arg()}
  end
  return firing
end

local function enqueue(plan, moment, waits)
  local id, name = moment.id, bucket(moment.id)
  local body = '-[' .. now_text .. ',' .. moment.at .. ',' .. plan.head .. 'null' .. plan.rest
  put('HSET', P .. 'job:' .. name, id, body)
  put('RPUSH', P .. 'ids:' .. name, id)
  call('ZADD', P .. 'buckets', tonumber(name, 16), name)
  count(plan.task, 'live', 1)
  if waits or moment.run_at ~= moment.at then
    make_pending({id = id, queue = plan.queue, priority = plan.priority, more = {
      run_at = tonumber(moment.run_at), token = 0, failures = 0, crashes = 0, life = 0, error = '',
      waits_for = waits and 'schedule:' .. plan.name or '', waits_since = waits and now or nil,
    }})
  else
    put('ZADD', due_key(plan.queue, plan.priority), moment.run_at, id)
    call('SADD', P .. 'queues', plan.queue)
    due_from(tonumber(moment.run_at))
  end
  if not waits then
    plan.current = id
  end
  record_fire(plan.name, 'f', moment.at, moment.at, '1', waits and 'queued' or 'fired', '', id)
end

local function skip(plan, moment)
  record_fire(plan.name, 's', moment.at, moment.at, '1', 'skipped', 'overlap', '')
end

-- Cancels those in line, and the current job; true if the current one has to stop first.
local function cancel_before(plan, live)
  for _, id in ipairs(ask('ZRANGE', P .. 'waits:schedule:' .. plan.name, 0, -1) or {}) do
    cancel_job(id)
  end
  if live == 'pending' then
    -- Its end must not set anything going.
    call('HSET', plan_key(plan.name), 'current', '')
  end
  if live then
    cancel_job(plan.current)
  end
  return live == 'running'
end

-- Moments that are new; gives the ids of jobs.
local function fire(plan, moments)
  local job = plan.current ~= '' and find_job(plan.current)
  local live, ids = job and not job.done and job.state or nil, {}
  plan.was_live = live ~= nil
  local waits = plan.overlap == 'cancel' and #moments > 0 and cancel_before(plan, live)
  for i, moment in ipairs(moments) do
    if plan.overlap == 'cancel' then
      if i == #moments then
        enqueue(plan, moment, waits)
        ids[1] = moment.id
      else
        skip(plan, moment)
      end
    elseif not live or plan.overlap == 'allow' then
      enqueue(plan, moment, false)
      ids[#ids + 1] = moment.id
      live = 'pending'
    elseif plan.overlap == 'queue' then
      enqueue(plan, moment, true)
      ids[#ids + 1] = moment.id
    else
      skip(plan, moment)
    end
  end
  return ids
end

-- nil: refused.
local function carry_out(firing)
  local plan = plan_of(firing.name, 'revision', 'cursor', 'next_at', 'current', 'task', 'queue', 'priority', 'head', 'rest',
    'overlap', 'every')
  if not plan or plan.state ~= 'active' then
    return nil
  end
  -- What its jobs are made of.
  if not match('-[0,0,' .. plan.head, PLACE) or plan.rest == '' or plan.queue == '' or not match(plan.priority, '^%d$') then
    return nil
  end
  if firing.moves and (plan.revision ~= firing.revision or plan.cursor ~= firing.before) then
    return nil
  end
  local new, seen = {}, {}
  for _, moment in ipairs(firing.moments) do
    if not seen[moment.at] and not ask('ZSCORE', P .. 'fires:' .. plan.name, 'f' .. moment.at) then
      seen[moment.at] = true
      new[#new + 1] = moment
    end
  end
  local before = plan.current
  local ids = fire(plan, new)
  for _, each in ipairs(firing.skipped) do
    record_fire(plan.name, 's', each.first, each.last, each.number, 'skipped', each.reason, '')
  end
  if firing.moves then
    call('HSET', plan_key(plan.name), 'cursor', firing.cursor)
    local is_busy = plan.every ~= '' and (plan.was_live or plan.current ~= before)
    plan.next_at = is_busy and '' or firing.next_at
  end
  keep_moment(plan)
  return ids
end

look_if_full()
local answers = {}
while at < #ARGV do
  local firing = read_firing()
  local ids = carry_out(firing)
  answers[#answers + 1] = ids and {#firing.moments - #ids, unpack(ids)} or 0
end
settle_up()
return answers
