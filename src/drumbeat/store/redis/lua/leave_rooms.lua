-- Removes an instance from its rooms: it gets no more messages.
-- KEYS: 1 the prefix
-- ARGV: 1 instance
-- returns: 1, or 0 if it is not known
-- flags: allow-oom
-- include: _prelude
if not exists('inst:' .. ARGV[1]) then return 0 end
call('HSET', P .. 'inst:' .. ARGV[1], 'left_rooms', 1)
return 1
