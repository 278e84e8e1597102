-- Ends pending jobs that should have started before now as expired; the rule is transitions.has_expired. What has ended, or may not
-- expire any more, is forgotten; a running job may still come back, and is looked at again a minute later.
-- KEYS: 1 the prefix
-- ARGV: 1 limit
-- returns: 1 if releases are left, else 0; how many
-- flags: allow-oom
-- include: _dependencies

local LOOK_AGAIN_US = 60000000
local MAX_SCANNED = 10000
local limit, expired, scanned = tonumber(ARGV[1]), 0, 0
check_if_full()
while expired < limit and scanned < MAX_SCANNED do
  local ids = call('ZRANGEBYSCORE', P .. 'expiring', '-inf', now_text, 'LIMIT', 0, limit - expired)
  if #ids == 0 then
    break
  end
  scanned = scanned + #ids
  bulk('ZREM', P .. 'expiring', ids)
  for _, id in ipairs(ids) do
    local job = find_job(id)
    local more = job and job.more
    if job and not job.done and more.failures + more.crashes + more.replays == 0 and not more.suspended then
      if job.state == 'pending' then
        remove_from_queue(job)
        job.token = more.token
        finish_without_result(job, {started = '', finished = '', error = more.error}, 'expired', nil)
        expired = expired + 1
      else
        safe_write('ZADD', P .. 'expiring', us(now + LOOK_AGAIN_US), id)
      end
    end
  end
end
local is_releasing = advance()
flush_effects()
return {is_releasing, expired}
