-- Takes tickets away from their owners, by force.
-- KEYS: 1 the prefix
-- ARGV: 1 lock, 2 ticket (empty: all that hold it), 3 by, 4 why
-- returns: how many there were
-- flags: allow-oom
-- touches: lock:<name>, line:<name>, holders:<name>, leases:<name>, lanes:<name>, grants:<name>, ticket:<id>, released,
-- releases
-- include: _locks
local KEPT = 1000
local keys = keys_of(ARGV[1])
if call('EXISTS', keys.lock) == 0 then
  return 0
end
bury(keys)
local gone = {}
if ARGV[2] == '' then
  gone = call('ZRANGE', keys.holders, 0, -1)
elseif call('HGET', ticket_key(ARGV[2]), 'lock') == ARGV[1] then
  gone = {ARGV[2]}
end
if #gone == 0 then
  return 0
end
call('HSET', keys.lock, 'released_at', us(now), 'released_by', ARGV[3], 'released_why', ARGV[4])
for _, id in ipairs(gone) do
  remove(keys, id, call('HGET', ticket_key(id), 'lane'))
  call('HSET', P .. 'released', id, 'released by ' .. ARGV[3] .. ': ' .. ARGV[4])
  call('LPUSH', P .. 'releases', id)
  tell(id, 0)
end
while call('LLEN', P .. 'releases') > KEPT do
  call('HDEL', P .. 'released', call('RPOP', P .. 'releases'))
end
serve(keys, {})
return #gone
