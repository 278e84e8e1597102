-- Marks a once-per-cluster step as done.
-- KEYS: 1 the prefix
-- ARGV: 1 what, 2 instance
-- returns: 1, or 0 if it is not this instance's
-- flags: allow-oom
-- include: _base

if call('HGET', P .. 'once', ARGV[1]) ~= ARGV[2] then
  return 0
end
call('HSET', P .. 'once', ARGV[1], 'done')
return 1
