-- Add messages to a stream; skip ids that were added within the last seconds. Forgets expired ids first.
-- KEYS: 1 the stream, 2 the known ids (sorted set by the second at which they were added)
-- ARGV: 1 seconds for which ids are remembered, 2 approximate maximum of entries (0: no limit), then id, event, id, event ...
-- returns: the number of messages added
local now = tonumber(redis.call('TIME')[1])
local remember = tonumber(ARGV[1])
local max_entries = tonumber(ARGV[2])
local added = 0
redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', now - remember)
for i = 3, #ARGV, 2 do
  if redis.call('ZADD', KEYS[2], 'NX', now, ARGV[i]) == 1 then
    if max_entries > 0 then
      redis.call('XADD', KEYS[1], 'MAXLEN', '~', max_entries, '*', 'id', ARGV[i], 'event', ARGV[i + 1])
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
