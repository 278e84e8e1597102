-- Force-releases tickets of a lock.
-- KEYS: 1 the prefix
-- ARGV: 1 lock, 2 ticket (empty: all that hold it), 3 by, 4 reason
-- returns: how many
-- flags: allow-oom
-- include: _locks
local MAX_RELEASES = 1000
local keys = lock_keys(ARGV[1])
if call('EXISTS', keys.lock) == 0 then
  return 0
end
expire_tickets(keys)
local gone = {}
if ARGV[2] == '' then
  gone = call('ZRANGE', keys.holders, 0, -1)
elseif call('HGET', ticket_key(ARGV[2]), 'lock') == ARGV[1] then
  gone = {ARGV[2]}
end
if #gone == 0 then
  return 0
end
call('HSET', keys.lock, 'released_at', now_text, 'released_by', ARGV[3], 'released_reason', ARGV[4])
for _, id in ipairs(gone) do
  remove_ticket(keys, id, call('HGET', ticket_key(id), 'lane'))
  call('HSET', P .. 'released', id, 'released by ' .. ARGV[3] .. ': ' .. ARGV[4])
  call('LPUSH', P .. 'releases', id)
  notify_ticket(id, 0)
end
while call('LLEN', P .. 'releases') > MAX_RELEASES do
  call('HDEL', P .. 'released', call('RPOP', P .. 'releases'))
end
grant_next(keys, {})
return #gone
