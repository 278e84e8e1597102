-- Adds a ticket at the end of a lock's queue, or renews it if it exists. `locks_used` is exact to the hour.
-- KEYS: 1 the prefix
-- ARGV: 1 ticket, 2 lock, 3 limit, 4 per (µs, or empty), 5 lease (µs), 6 owner, 7 what for
-- returns: state (1 holds, 2 waits), token, lane, granted_at (0: not), place, check after (µs; -1: nothing to wait for)
-- include: _locks
local DAY, HOUR = 86400000000, 3600000000

-- Each new lock removes some that were unused for a day and the length of their window.
local function forget_idle()
  for _, name in ipairs(call('ZRANGEBYSCORE', P .. 'locks_used', '-inf', '(' .. us(now - DAY), 'LIMIT', 0, 20)) do
    local keys = lock_keys(name)
    local per = tonumber(call('HGET', keys.lock, 'per')) or 0
    local used_at = tonumber(call('ZSCORE', P .. 'locks_used', name))
    expire_tickets(keys)
    if used_at < now - DAY - per and call('ZCARD', keys.leases) == 0 then
      call('DEL', keys.lock, keys.waiters, keys.holders, keys.leases, keys.lanes, keys.grants)
      call('ZREM', P .. 'locks', name)
      call('ZREM', P .. 'locks_used', name)
    end
  end
end

local id, keys = ARGV[1], lock_keys(ARGV[2])
local facts = call('HMGET', keys.lock, 'last', 'limit', 'per', 'used_at')
local last, used_at, changes = tonumber(facts[1]) or 0, tonumber(facts[4]) or 0, {}
if not facts[1] then
  forget_idle()
  call('ZADD', P .. 'locks', 0, ARGV[2])
end
local is_empty = call('ZCARD', keys.leases) == 0
if not is_empty then
  expire_tickets(keys)
end
-- Writes only what changed: most acquire a lock with the options of the last time.
if facts[2] ~= ARGV[3] then
  changes = {'limit', ARGV[3]}
end
if ARGV[4] == '' and facts[3] then
  call('HDEL', keys.lock, 'per')
elseif ARGV[4] ~= '' and facts[3] ~= ARGV[4] then
  append(changes, 'per', ARGV[4])
end
if used_at <= now - HOUR then
  append(changes, 'used_at', now_text)
  call('ZADD', P .. 'locks_used', now_text, ARGV[2])
end
if call('ZADD', keys.leases, us(now + ARGV[5]), id) == 1 then
  local number = us(math.max(last + 1, now))
  append(changes, 'last', number)
  call('HSET', keys.lock, unpack(changes))
  local ticket = {
    'lock', ARGV[2], 'number', number, 'lease', ARGV[5], 'entered_at', now_text, 'owner', ARGV[6], 'what', ARGV[7],
  }
  if is_empty and ARGV[4] == '' then
    -- Free lock without a window: what `grant_next` would do, with half of the calls.
    local lane = take_lane(keys)
    ticket[13], ticket[14], ticket[15], ticket[16] = 'granted_at', ticket[8], 'lane', lane
    call('HSET', ticket_key(id), unpack(ticket))
    call('ZADD', keys.holders, number, id)
    return {1, tonumber(number), tonumber(lane), now, 0, -1}
  end
  call('HSET', ticket_key(id), unpack(ticket))
  call('ZADD', keys.waiters, number, id)
elseif #changes > 0 then
  call('HSET', keys.lock, unpack(changes))
end
local opens = grant_next(keys, {[id] = true})
local answer = ticket_status(id)
if not answer then
  return {0}
end
if answer[1] == 1 then
  return answer
end
-- The earliest lease end among all tickets, as this one is last or nearly so.
local first = call('ZRANGE', keys.leases, 0, 1, 'WITHSCORES')
local ahead = tonumber(first[1] == id and first[4] or first[2])
return place_waiter(answer, (call('ZRANK', keys.waiters, id) or 0) + 1, ahead, opens)
