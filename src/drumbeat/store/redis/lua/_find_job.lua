-- Finds a job in any state.
-- include: _transitions

local living = nil
-- Returns the instance that holds a job, and the token; nil if none does. Only live instances hold jobs.
local function find_runner(id)
  living = living or call('ZRANGE', P .. 'alive', 0, -1)
  for _, instance in ipairs(living) do
    local token = safe_read('ZSCORE', P .. 'held:' .. instance, id)
    if token then
      return instance, tonumber(token)
    end
  end
end

-- An unreadable record counts as dead: people find it there and may discard it.
local STATES = {succeeded = true, cancelled = true, expired = true, dead = true}
local function ended_state(done)
  local state = match(done, '^%[%-?%d+,"(%a+)"')
  return STATES[state] and state or 'dead'
end

-- Loads a job with its state; also the live state of a live job, instance and token of a running one, the end record of an
-- ended one.
local function find_job(id)
  local job = load_job(id)
  if not job then
    return nil
  end
  job.done = safe_read('HGET', P .. 'ended:' .. job.bucket, id)
  if job.done then
    job.state = ended_state(job.done)
    return job
  end
  job.more = parse_live_state(call('HGET', P .. 'live_state', id), job.body)
  job.state = 'pending'
  if job.more.blocked_on == '' and not safe_read('ZSCORE', due_key(job.queue, job.priority, job.lane), id) then
    job.instance, job.token = find_runner(id)
    job.state = 'running'
  end
  return job
end

-- Removes a job from its pending index.
local function remove_from_queue(job)
  if job.more.blocked_on ~= '' then
    end_wait(job.more.blocked_on, job.queue, job.priority, job.id)
  elseif job.lane then
    lanes().drop(job.queue, job.lane, job.priority, job.id)
  else
    safe_write('ZREM', due_key(job.queue, job.priority), job.id)
  end
end

-- Cancels a job; returns the state it was found in, nil if there is no such job.
local function cancel_job(id)
  local job = find_job(id)
  if not job then
    return nil
  end
  if job.state == 'pending' then
    remove_from_queue(job)
    job.token, job.cancel_requested = job.more.token, true
    finish_without_result(job, {started = '', finished = '', error = job.more.error}, 'cancelled', nil)
  elseif job.state == 'running' and job.instance then
    safe_write('SADD', P .. 'cancels:' .. job.instance, id)
  elseif job.state == 'cancelled' then
    -- By a person from now on: the replay of a parent does not revive it.
    safe_write('HDEL', P .. 'cancelled_by', id)
  end
  return job.state
end
