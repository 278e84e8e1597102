-- Add messages to a stream, each id once: those that were added lately are left out. Old memories go first.
-- KEYS: 1 the stream, 2 the ids that were added, by the second of their adding
-- ARGV: 1 how many seconds an id is remembered, 2 about how many entries the stream keeps (0: all), then id, event, id, event ...
-- returns: how many were added
local now = tonumber(redis.call('TIME')[1])
local remember = tonumber(ARGV[1])
local longest = tonumber(ARGV[2])
local added = 0
redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', now - remember)
for i = 3, #ARGV, 2 do
  if redis.call('ZADD', KEYS[2], 'NX', now, ARGV[i]) == 1 then
    if longest > 0 then
      redis.call('XADD', KEYS[1], 'MAXLEN', '~', longest, '*', 'id', ARGV[i], 'event', ARGV[i + 1])
    else
      redis.call('XADD', KEYS[1], '*', 'id', ARGV[i], 'event', ARGV[i + 1])
    end
    added = added + 1
  end
end
if added > 0 then
  redis.call('EXPIRE', KEYS[2], remember)
end
return added
