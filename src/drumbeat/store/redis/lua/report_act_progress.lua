-- Records the progress of an act that has not ended.
-- KEYS: 1 the prefix
-- ARGV: 1 id, 2 touched, 3 matched or ''
-- returns: who asked it to stop, or nothing
-- flags: allow-oom
-- include: _prelude
local act = P .. 'act:' .. ARGV[1]
if call('EXISTS', act) == 0 or call('HEXISTS', act, 'done_at') == 1 then
  return false
end
call('HSET', act, 'touched', ARGV[2], 'matched', ARGV[3], 'reported_at', now_text)
call('ZADD', P .. 'audit_unended', 0, ARGV[1])
return call('HGET', act, 'stopped_by')
