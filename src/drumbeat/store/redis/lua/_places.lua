-- Where a job is.
-- include: _ending

local living = nil
-- The instance that holds a job, and its token; nil if none does. Only the living hold jobs.
local function runner(id)
  living = living or call('ZRANGE', P .. 'alive', 0, -1)
  for _, instance in ipairs(living) do
    local token = ask('ZSCORE', P .. 'held:' .. instance, id)
    if token then
      return instance, tonumber(token)
    end
  end
end

-- What cannot be read is dead: people see it there, and may discard it.
local STATES = {succeeded = true, cancelled = true, dead = true}
local function state_of(done)
  local state = match(done, '^%[%-?%d+,"(%a+)"')
  return STATES[state] and state or 'dead'
end

-- The job of an id with its state; of a live one also more, of a running one instance and token, of an ended one done (text).
local function find_job(id)
  local job = job_of(id)
  if not job then
    return nil
  end
  job.done = ask('HGET', P .. 'done:' .. job.bucket, id)
  if job.done then
    job.state = state_of(job.done)
    return job
  end
  job.more = more_of(call('HGET', P .. 'more', id), job.body)
  job.state = 'pending'
  if job.more.waits_for == '' and not ask('ZSCORE', due_key(job.queue, job.priority), id) then
    job.instance, job.token = runner(id)
    job.state = 'running'
  end
  return job
end

-- Out of its line, for good or for another moment.
local function leave_line(job)
  if job.more.waits_for ~= '' then
    end_wait(job.more.waits_for, job.queue, job.priority, job.id)
  else
    put('ZREM', due_key(job.queue, job.priority), job.id)
  end
end

-- Cancels a job; gives the state it was found in, nil if there is none.
local function cancel_job(id)
  local job = find_job(id)
  if not job then
    return nil
  end
  if job.state == 'pending' then
    leave_line(job)
    job.token, job.cancel_requested = job.more.token, true
    end_cancelled(job, {started = '', finished = '', error = job.more.error}, nil)
  elseif job.state == 'running' and job.instance then
    put('SADD', P .. 'cancels:' .. job.instance, id)
  end
  return job.state
end
