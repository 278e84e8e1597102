-- One schedule.
-- KEYS: 1 the prefix
-- ARGV: 1 name
-- returns: its fields (see _showing.lua)
-- include: _showing

return call('ZSCORE', P .. 'schedules', ARGV[1]) and shown(ARGV[1])
