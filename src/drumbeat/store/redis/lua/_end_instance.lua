-- Ends an instance: removes it from `alive` and records the reason.
-- include: _transitions
-- include: _leader

-- Returns its jobs, as load_held_job gives them.
local function load_held_jobs(instance)
  local found, jobs = safe_read('ZRANGE', P .. 'held:' .. instance, 0, -1, 'WITHSCORES') or {}, {}
  for i = 1, #found, 2 do
    jobs[#jobs + 1] = load_held_job(instance, found[i], tonumber(found[i + 1]))
  end
  return jobs
end

-- The first write deletes, so that it works on a full server.
local function end_instance(instance, state, reason)
  call('ZREM', P .. 'alive', instance)
  call('ZREM', P .. 'parked_claims', instance)
  call('HDEL', P .. 'parked_requests', instance)
  call('ZADD', P .. 'gone', now_text, instance)
  safe_write('HSET', P .. 'inst:' .. instance, 'state', state, 'running', 0, 'ended_at', now_text, 'reason', reason)
  give_up_lead(instance)
end
