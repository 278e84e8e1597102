-- Marks a workflow as cancelled.
-- KEYS: 1 the prefix
-- ARGV: 1 id
-- returns: 1, or 0 if it does not exist
-- flags: allow-oom
-- include: _base

local key = P .. 'workflow:' .. ARGV[1]
if safe_read('HEXISTS', key, 'name') ~= 1 then
  return 0
end
call('HSETNX', key, 'cancelled_at', now_text)
safe_write('SADD', P .. 'cancelled_workflows', ARGV[1])
return 1
