-- How an instance ends: it is no longer among the living, and its record says why.
-- include: _transitions
-- include: _leader

-- The jobs that it holds: a list of load_held_job.
local function load_held_jobs(instance)
  local found, jobs = safe_read('ZRANGE', P .. 'held:' .. instance, 0, -1, 'WITHSCORES') or {}, {}
  for i = 1, #found, 2 do
    jobs[#jobs + 1] = load_held_job(instance, found[i], tonumber(found[i + 1]))
  end
  return jobs
end

-- The first write takes away, so that a full server lets it happen.
local function end_instance(instance, state, reason)
  call('ZREM', P .. 'alive', instance)
  call('ZREM', P .. 'standing', instance)
  call('HDEL', P .. 'asked', instance)
  call('ZADD', P .. 'gone', us(now), instance)
  safe_write('HSET', P .. 'inst:' .. instance, 'state', state, 'running', 0, 'ended_at', us(now), 'reason', reason)
  give_up_lead(P, instance)
end
