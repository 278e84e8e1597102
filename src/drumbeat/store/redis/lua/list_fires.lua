-- Lists the recorded fires of a schedule, newest first.
-- KEYS: 1 the prefix
-- ARGV: 1 name, 2 only those before this time ('+inf', or '(' and µs), 3 limit
-- returns: for each its text (see _schedule.lua: record_fire)
-- include: _schedule

local members = safe_read('ZREVRANGEBYSCORE', P .. 'fires:' .. ARGV[1], ARGV[2], '-inf', 'LIMIT', 0, ARGV[3]) or {}
return #members > 0 and safe_read('HMGET', P .. 'fire_records:' .. ARGV[1], unpack(members)) or {}
