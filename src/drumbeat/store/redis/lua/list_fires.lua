-- The fire records of some schedules, newest first.
-- KEYS: 1 the prefix
-- ARGV: 1 only fire times before this ('+inf', or '(' and µs), 2 limit for each, then names
-- returns: for each name its records (see _schedule.lua: record_fire)
-- include: _schedule

local found = {}
for i = 3, #ARGV do
  local name = ARGV[i]
  local members = safe_read('ZREVRANGEBYSCORE', P .. 'fires:' .. name, ARGV[1], '-inf', 'LIMIT', 0, ARGV[2]) or {}
  found[i - 2] = #members > 0 and safe_read('HMGET', P .. 'fire_records:' .. name, unpack(members)) or {}
end
return found
