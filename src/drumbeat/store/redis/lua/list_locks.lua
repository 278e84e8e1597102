-- Lists locks by name.
-- KEYS: 1 the prefix
-- ARGV: 1 after this name, 2 limit, 3 idle ones as well (1 or 0), 4 only this one (or empty), 5 waiters (1 or 0)
-- returns: for each: {name, limit, per or '', holding, waiting, {released_at, by, reason} or {}, {ticket ...},
-- when a full window opens or 0}, where a ticket is
-- {id, token, lane or '', owner, what, entered_at, granted_at or '', µs left}
-- include: _locks
local MAX_TICKETS, CHUNK = 1000, 100

local function live_tickets(keys, set)
  local found = {}
  for _, id in ipairs(call('ZRANGE', set, 0, -1)) do
    local ends = tonumber(call('ZSCORE', keys.leases, id))
    if ends and ends > now then
      found[#found + 1] = {id, ends - now}
    end
  end
  return found
end

local function add_tickets(list, found)
  for _, each in ipairs(found) do
    if #list < MAX_TICKETS then
      local facts = call('HMGET', ticket_key(each[1]), 'number', 'lane', 'owner', 'what', 'entered_at', 'granted_at')
      list[#list + 1] = {
        each[1], facts[1] or '', facts[2] or '', facts[3] or '', facts[4] or '', facts[5] or '', facts[6] or '', each[2],
      }
    end
  end
end

local function opens_at(keys, limit, per)
  local last = per and call('ZREVRANGE', keys.grants, limit - 1, limit - 1, 'WITHSCORES')[2]
  local at = last and tonumber(last) + per or 0
  return at > now and at or 0
end

local function describe_lock(name)
  local keys = lock_keys(name)
  local facts = call('HMGET', keys.lock, 'limit', 'per', 'released_at', 'released_by', 'released_reason')
  if not facts[1] then
    return nil
  end
  local holders, line, tickets = live_tickets(keys, keys.holders), live_tickets(keys, keys.waiters), {}
  if ARGV[3] == '0' and #holders + #line == 0 then
    return nil
  end
  add_tickets(tickets, holders)
  if ARGV[5] == '1' then
    add_tickets(tickets, line)
  end
  local released = facts[3] and {facts[3], facts[4] or '', facts[5] or ''} or {}
  return {name, facts[1], facts[2] or '', #holders, #line, released, tickets,
    opens_at(keys, tonumber(facts[1]) or 1, tonumber(facts[2]))}
end

if ARGV[4] ~= '' then
  return {describe_lock(ARGV[4])}
end
local answers, first = {}, ARGV[1] == '' and '-' or '(' .. ARGV[1]
while true do
  local names = call('ZRANGEBYLEX', P .. 'locks', first, '+', 'LIMIT', 0, CHUNK)
  for _, name in ipairs(names) do
    answers[#answers + 1] = describe_lock(name)
    if #answers == tonumber(ARGV[2]) then
      return answers
    end
  end
  if #names < CHUNK then
    return answers
  end
  first = '(' .. names[#names]
end
