-- Makes pending jobs due now; jobs that are due already keep their place. Not those that wait for a signal or for parents. Sleeps end, also on record.
-- KEYS: 1 the prefix
-- ARGV: ids
-- returns: how many were pending
-- include: _find_job

local function end_sleeps(id)
  local steps = safe_read('HGETALL', P .. 'steps:' .. id) or {}
  for i = 1, #steps, 2 do
    local head, till, rest = match(steps[i + 1], '^(%[%d+,%d+,)(%d+)(.*)$')
    if till and sub(steps[i], 1, 6) == 'sleep\0' and tonumber(till) > now then
      call('HSET', P .. 'steps:' .. id, steps[i], head .. now_text .. rest)
    end
  end
end

local changed, seen = 0, {}
for _, id in ipairs(ARGV) do
  local job = not seen[id] and find_job(id)
  seen[id] = true
  local suspended = job and job.state == 'pending' and job.more.suspended or ''
  if suspended == 'sleep' then
    end_sleeps(id)
  end
  if job and job.state == 'pending' and job.more.blocked_on ~= 'parents' and (suspended == '' or suspended == 'sleep') then
    changed = changed + 1
    if job.more.run_at > now then
      make_due_now(job)
    else
      wake_at(now)
    end
  end
end
flush_effects()
return changed
