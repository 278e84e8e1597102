-- How many ready jobs of its queue would be claimed before this one.
-- KEYS: 1 the prefix
-- ARGV: 1 id
-- returns: before when history was pruned, and how many; nothing if it is nowhere
-- include: _places

local job = find_job(ARGV[1])
if not job then
  return {call('HGET', P .. 'meta', 'pruned_before'), false}
end
local ahead = 0
if job.state == 'pending' and job.more.waits_for == '' then
  local line = due_key(job.queue, job.priority)
  for priority = 0, tonumber(job.priority) - 1 do
    ahead = ahead + (ask('ZCOUNT', due_key(job.queue, priority), '-inf', now_text) or 0)
  end
  if job.more.run_at <= now then
    ahead = ahead + (ask('ZRANK', line, job.id) or 0)
  else
    ahead = ahead + (ask('ZCOUNT', line, '-inf', now_text) or 0)
  end
end
return {false, ahead}
