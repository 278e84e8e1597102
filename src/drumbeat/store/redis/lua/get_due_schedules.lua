-- Returns due schedules, and when to check again.
-- KEYS: 1 the prefix
-- ARGV: 1 limit
-- returns: now, the first fire after now (or nothing), the shortest interval whose job is live (or nothing), and the fields
-- of the schedules that are due, oldest first (see _schedule.lua: schedule_fields)
-- include: _schedule

local due = {}
for i, name in ipairs(call('ZRANGEBYSCORE', P .. 'next_fires', '-inf', now_text, 'LIMIT', 0, ARGV[1])) do
  due[i] = {name, schedule_fields(name)}
end
local ahead = call('ZRANGEBYSCORE', P .. 'next_fires', '(' .. now_text, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
local shortest, at = false, 0
repeat
  -- Schedules past their end have no job.
  local name, every = unpack(call('ZRANGE', P .. 'intervals', at, at, 'WITHSCORES'))
  if name and (safe_read('HGET', schedule_key(name), 'current') or '') ~= '' then
    shortest = tonumber(every)
  end
  at = at + 1
until shortest or not name
local following = tonumber(ahead[2])
return {now, following and following < 1e18 and following or false, shortest, due}
