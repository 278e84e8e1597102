-- Returns one schedule.
-- KEYS: 1 the prefix
-- ARGV: 1 name
-- returns: its fields (see _schedule.lua: schedule_fields)
-- include: _schedule

return call('ZSCORE', P .. 'schedules', ARGV[1]) and schedule_fields(ARGV[1])
