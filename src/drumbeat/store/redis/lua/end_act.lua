-- Records the end of an act: done, refused or failed.
-- KEYS: 1 the prefix
-- ARGV: 1 id, 2 touched, 3 outcome, 4 1 if there is an answer, 5 the answer
-- returns: nothing
-- flags: allow-oom
-- touches: act:<id>
local act, time = KEYS[1] .. 'act:' .. ARGV[1], redis.call('TIME')
if redis.call('EXISTS', act) == 0 or redis.call('HEXISTS', act, 'done_at') == 1 then return end
local now = string.format('%.0f', time[1] * 1000000 + time[2])
redis.call('HSET', act, 'done_at', now, 'touched', ARGV[2], 'outcome', ARGV[3])
if ARGV[4] == '1' then
  redis.call('HSET', act, 'answer', ARGV[5])
end
