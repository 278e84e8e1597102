-- Records the end of an act: done, refused or failed.
-- KEYS: 1 the prefix
-- ARGV: 1 id, 2 touched, 3 outcome, then the answer, if there is one
-- returns: nothing
-- flags: allow-oom
-- include: _prelude
local act = P .. 'act:' .. ARGV[1]
if call('EXISTS', act) == 1 and call('HEXISTS', act, 'done_at') == 0 then
  local answer = ARGV[4] and {'answer', ARGV[4]} or {}
  call('HSET', act, 'done_at', now_text, 'touched', ARGV[2], 'outcome', ARGV[3], unpack(answer))
  call('ZREM', P .. 'audit_unended', ARGV[1])
end
