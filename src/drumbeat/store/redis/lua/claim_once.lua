-- Claims a step that runs once in the whole cluster.
-- KEYS: 1 the prefix
-- ARGV: 1 what, 2 instance
-- returns: yours, busy or done
-- flags: allow-oom
-- include: _base

local holder = call('HGET', P .. 'once', ARGV[1])
if holder == 'done' then
  return 'done'
end
if holder and holder ~= ARGV[2] and call('ZSCORE', P .. 'alive', holder) then
  return 'busy'
end
call('HSET', P .. 'once', ARGV[1], ARGV[2])
return 'yours'
