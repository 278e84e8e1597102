-- Lists queues with their numbers of jobs.
-- KEYS: 1 the prefix
-- ARGV: none
-- returns: {queue, ready, scheduled, run_at of the oldest ready job} of those that may have pending jobs; queue and running,
-- flat; queue and waiting, flat; queue and pause, flat; records of live instances
-- include: _running_jobs
-- include: _lane_counts

local queues = {}
for _, queue in ipairs(call('SMEMBERS', P .. 'queues')) do
  local ready, all, oldest = 0, 0, false
  for priority = 0, 9 do
    local key = due_key(queue, priority)
    local size = safe_read('ZCARD', key) or 0
    if size > 0 then
      local first = tonumber(call('ZRANGE', key, 0, 0, 'WITHSCORES')[2])
      all = all + size
      ready = ready + call('ZCOUNT', key, '-inf', now_text)
      if first <= now and first > -1e18 and (not oldest or first < oldest) then
        oldest = first
      end
    end
  end
  if has_lanes() then
    local pending, later, first = count_in_lanes(queue)
    all, ready = all + pending, ready + pending - later
    oldest = pending > later and first and (not oldest or first < oldest) and first or oldest
  end
  if all > 0 then
    queues[#queues + 1] = {queue, ready, all - ready, oldest}
  end
end
local running, records = count_running(2)
return {queues, running, call('HGETALL', P .. 'blocked_counts'), call('HGETALL', P .. 'paused'), records}
