-- Takes the oldest messages out of an inbox.
-- KEYS: 1 the prefix
-- ARGV: 1 instance, 2 limit
-- returns: their texts, each with its time (µs) in the first line
-- flags: allow-oom
-- include: _inbox
local inbox = P .. 'inbox:' .. ARGV[1]
local found = safe_read('LRANGE', inbox, 0, ARGV[2] - 1)
if not found then
  call('DEL', inbox)
elseif #found > 0 then
  call('LTRIM', inbox, ARGV[2], -1)
  forget_empty_inbox(ARGV[1])
end
return found or {}
