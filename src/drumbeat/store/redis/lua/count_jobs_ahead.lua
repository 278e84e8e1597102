-- How many ready jobs of its queue would be claimed before this one.
-- KEYS: 1 the prefix
-- ARGV: 1 id
-- returns: before when history was pruned, and how many; nothing if it is nowhere
-- include: _find_job

local job = find_job(ARGV[1])
if not job then
  return {call('HGET', P .. 'meta', 'pruned_before'), false}
end
local ahead = 0
if job.state == 'pending' and job.more.blocked_on == '' then
  local line = due_key(job.queue, job.priority)
  for priority = 0, tonumber(job.priority) - 1 do
    ahead = ahead + (safe_read('ZCOUNT', due_key(job.queue, priority), '-inf', now_text) or 0)
  end
  if job.more.run_at <= now then
    ahead = ahead + (safe_read('ZRANK', line, job.id) or 0)
  else
    ahead = ahead + (safe_read('ZCOUNT', line, '-inf', now_text) or 0)
  end
end
return {false, ahead}
