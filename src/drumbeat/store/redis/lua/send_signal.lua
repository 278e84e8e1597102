-- Sends a signal to a live job; one that is suspended on it is due now.
-- KEYS: 1 the prefix
-- ARGV: 1 id of the job, 2 id of the signal, 3 name, 4 payload, 5 how many unread ones it may have
-- returns: 'sent'; or why nothing was stored: the state of a job that has ended, 'unknown', 'too many'
-- include: _find_job
-- include: _signals

local id, key = ARGV[1], P .. 'signals:' .. ARGV[1]
local job = find_job(id)
if not job then
  return 'unknown'
end
if safe_read('HEXISTS', key, ARGV[2]) == 1 then  -- also where the job has ended since: the answer was lost
  return 'sent'
end
if job.done then
  return job.state
end
local _, unread = oldest_unread(id, ARGV[3])
if unread >= tonumber(ARGV[5]) then
  return 'too many'
end
safe_write('HSET', key, ARGV[2], now_text .. '\n\n' .. ARGV[3] .. '\n' .. ARGV[4])
if job.state == 'pending' and job.more.suspended == 'signal:' .. ARGV[3] and job.more.run_at > now then
  make_due_now(job)
end
flush_effects()
return 'sent'
