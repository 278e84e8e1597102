-- Jobs that wait for something other than time.
-- include: _base

local function wait_key(waits_for, queue, priority)
  return P .. 'wait:' .. waits_for .. '\0' .. queue .. ':' .. priority
end

-- Pending jobs that wait for something other than time, and those that do no longer.
local function begin_wait(job)
  local why = job.more.waits_for
  call('ZADD', wait_key(why, job.queue, job.priority), us(job.more.run_at), job.id)
  call('ZADD', P .. 'waits:' .. why, us(job.more.waits_since), job.id)
  call('HINCRBY', P .. 'waiting', why, 1)
  call('HINCRBY', P .. 'parked', job.queue, 1)
end

local function end_wait(why, queue, priority, id)
  call('ZREM', wait_key(why, queue, priority), id)
  call('ZREM', P .. 'waits:' .. why, id)
  if call('HINCRBY', P .. 'waiting', why, -1) <= 0 then
    call('HDEL', P .. 'waiting', why)
  end
  if call('HINCRBY', P .. 'parked', queue, -1) <= 0 then
    call('HDEL', P .. 'parked', queue)
  end
end
