-- Returns the status of tickets; renews their leases on request.
-- KEYS: 1 the prefix
-- ARGV: 1 renew (1 or 0), then tickets, each once
-- returns: for each: {state (1 holds, 2 waits), token, lane, granted_at (0: not), place, check after (µs; -1: nothing to wait
-- for)}, or {0, the reason of a forced release, or nothing}
-- flags: allow-oom
-- include: _locks
local asked, lines, lock_of = {}, {}, {}
for i = 2, #ARGV do
  local id = ARGV[i]
  asked[id] = true
  local name = call('HGET', ticket_key(id), 'lock')
  if name then
    lock_of[id] = name
    lines[name] = lines[name] or lock_keys(name)
  end
end
for _, keys in pairs(lines) do
  expire_tickets(keys)
end
if ARGV[1] == '1' then
  for id, name in pairs(lock_of) do
    local lease = tonumber(call('HGET', ticket_key(id), 'lease'))
    if lease then
      call('ZADD', lines[name].leases, us(now + lease), id)
    end
  end
end
for _, keys in pairs(lines) do
  keys.opens = grant_next(keys, asked)
end

-- Computes the place of each waiter of a lock, and when the next lease ahead of it ends.
local function compute_places(keys)
  local leases, list = {}, call('ZRANGE', keys.leases, 0, -1, 'WITHSCORES')
  for i = 1, #list, 2 do
    leases[list[i]] = tonumber(list[i + 1])
  end
  local ahead
  for _, id in ipairs(call('ZRANGE', keys.holders, 0, -1)) do
    local ends = leases[id] or now
    ahead = math.min(ahead or ends, ends)
  end
  keys.places, keys.ahead = {}, {}
  for place, id in ipairs(call('ZRANGE', keys.waiters, 0, -1)) do
    local ends = leases[id] or now
    keys.places[id], keys.ahead[id] = place, ahead
    ahead = math.min(ahead or ends, ends)
  end
end

local answers = {}
for i = 2, #ARGV do
  local id = ARGV[i]
  local answer = ticket_status(id)
  if not answer then
    answer = {0, call('HGET', P .. 'released', id)}
  elseif answer[1] == 2 then
    local keys = lines[lock_of[id]]
    if not keys.places then
      compute_places(keys)
    end
    place_waiter(answer, keys.places[id] or 1, keys.ahead[id], keys.opens)
  end
  answers[#answers + 1] = answer
end
return answers
