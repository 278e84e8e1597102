-- What is to be fired now, and when to look again.
-- KEYS: 1 the prefix
-- ARGV: 1 at most so many
-- returns: now, the first moment after now (or nothing), the shortest interval whose job is under way (or nothing), and the fields
-- of the schedules that are due, oldest first (see _schedule_fields.lua)
-- include: _schedule_fields

local due = {}
for i, name in ipairs(call('ZRANGEBYSCORE', P .. 'moments', '-inf', now_text, 'LIMIT', 0, ARGV[1])) do
  due[i] = {name, schedule_fields(name)}
end
local ahead = call('ZRANGEBYSCORE', P .. 'moments', '(' .. now_text, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
local shortest, at = false, 0
repeat
  -- Those that have come to their end have no job.
  local name, every = unpack(call('ZRANGE', P .. 'intervals', at, at, 'WITHSCORES'))
  if name and (safe_read('HGET', schedule_key(name), 'current') or '') ~= '' then
    shortest = tonumber(every)
  end
  at = at + 1
until shortest or not name
local following = tonumber(ahead[2])
return {now, following and following < 1e18 and following or false, shortest, due}
