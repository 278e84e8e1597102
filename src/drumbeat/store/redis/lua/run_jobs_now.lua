-- Makes pending jobs due now; jobs that are due already keep their place.
-- KEYS: 1 the prefix
-- ARGV: ids
-- returns: how many were pending
-- include: _find_job

local changed, seen = 0, {}
for _, id in ipairs(ARGV) do
  local job = not seen[id] and find_job(id)
  seen[id] = true
  if job and job.state == 'pending' then
    changed = changed + 1
    wake_at(now)
    if job.more.run_at > now then
      job.more.run_at = now
      local waits = job.more.blocked_on ~= ''
      local line = waits and wait_key(job.more.blocked_on, job.queue, job.priority) or due_key(job.queue, job.priority)
      call('ZADD', line, now_text, id)
      call('HSET', P .. 'live_state', id, format_live_state(job.more))
    end
  end
end
flush_effects()
return changed
