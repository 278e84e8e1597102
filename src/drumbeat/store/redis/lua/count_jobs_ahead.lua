-- How many ready jobs of a queue would be claimed before a pending job.
-- KEYS: 1 the prefix
-- ARGV: 1 queue, 2 priority, 3 run_at and 4 id of the job
-- returns: how many
-- include: _base

local queue, own_priority, run_at, id = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4]
local ahead = 0
for priority = 0, own_priority - 1 do
  ahead = ahead + (safe_read('ZCOUNT', due_key(queue, priority), '-inf', now_text) or 0)
end
if run_at <= now then
  return ahead + (safe_read('ZRANK', due_key(queue, own_priority), id) or 0)
end
return ahead + (safe_read('ZCOUNT', due_key(queue, own_priority), '-inf', now_text) or 0)
