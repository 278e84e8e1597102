-- Takes the oldest messages out of an inbox.
-- KEYS: 1 the prefix
-- ARGV: 1 instance, 2 limit
-- returns: their texts, each with its time (µs) in the first line
-- flags: allow-oom
-- touches: inbox:<instance>, inboxes
local inbox = KEYS[1] .. 'inbox:' .. ARGV[1]
local found = redis.pcall('LRANGE', inbox, 0, ARGV[2] - 1)
if found.err then
  redis.call('DEL', inbox)
  return {}
end
if #found == 0 then return found end
redis.call('LTRIM', inbox, ARGV[2], -1)
if redis.call('EXISTS', inbox) == 0 then
  redis.call('SREM', KEYS[1] .. 'inboxes', ARGV[1])
end
return found
