-- Takes a place at the end of a line; a ticket that is there already is renewed.
-- KEYS: 1 the prefix
-- ARGV: 1 ticket, 2 lock, 3 limit, 4 per (µs, or empty), 5 lease (µs), 6 owner, 7 what for
-- returns: state (1 holds, 2 waits), token, lane, granted_at (0: not), place, look after (µs; -1: nothing to wait for)
-- touches: locks, locks_used, lock:<name>, line:<name>, holders:<name>, leases:<name>, lanes:<name>, grants:<name>, ticket:<id>
-- include: _locks
local DAY = 86400000000

-- Each new name makes room for some that nobody has used for a day and the length of their window.
local function forget_idle()
  for _, name in ipairs(call('ZRANGEBYSCORE', P .. 'locks_used', '-inf', '(' .. us(now - DAY), 'LIMIT', 0, 20)) do
    local keys = keys_of(name)
    local per = tonumber(call('HGET', keys.lock, 'per')) or 0
    local used_at = tonumber(call('ZSCORE', P .. 'locks_used', name))
    bury(keys)
    if used_at < now - DAY - per and call('ZCARD', keys.leases) == 0 then
      call('DEL', keys.lock, keys.line, keys.holders, keys.leases, keys.lanes, keys.grants)
      call('ZREM', P .. 'locks', name)
      call('ZREM', P .. 'locks_used', name)
    end
  end
end

local id, keys = ARGV[1], keys_of(ARGV[2])
local last = tonumber(call('HGET', keys.lock, 'last'))
if not last then
  forget_idle()
  call('ZADD', P .. 'locks', 0, ARGV[2])
end
bury(keys)
call('HSET', keys.lock, 'limit', ARGV[3])
if ARGV[4] == '' then
  call('HDEL', keys.lock, 'per')
else
  call('HSET', keys.lock, 'per', ARGV[4])
end
call('ZADD', P .. 'locks_used', us(now), ARGV[2])
if call('EXISTS', ticket_key(id)) == 0 then
  local number = us(math.max((last or 0) + 1, now))
  call('HSET', keys.lock, 'last', number)
  call('HSET', ticket_key(id), 'lock', ARGV[2], 'number', number, 'lease', ARGV[5], 'entered_at', us(now), 'owner', ARGV[6],
    'what', ARGV[7])
  call('ZADD', keys.line, number, id)
end
call('ZADD', keys.leases, us(now + ARGV[5]), id)
local opens = serve(keys, {[id] = true})
local answer = stands(id)
if answer[1] == 1 then
  answer[5], answer[6] = 0, -1
  return answer
end
answer[5] = call('ZRANK', keys.line, id) + 1
-- The next lease to end ahead of it: in the whole line, as it is the last, or nearly.
local first = call('ZRANGE', keys.leases, 0, 1, 'WITHSCORES')
local ahead = tonumber(first[1] == id and first[4] or first[2])
local after = ahead and math.max(0, ahead - now) or -1
if answer[5] == 1 and opens and (after < 0 or opens < after) then
  after = opens
end
answer[6] = after
return answer
