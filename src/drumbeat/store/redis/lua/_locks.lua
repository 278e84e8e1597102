-- How a lock is granted to its waiters. Common to all lock scripts.
-- include: _prelude

-- A damaged key is deleted and the lock starts again, so that no script fails halfway.
local call = safe_write

-- The keys of a lock: fields, waiters and holders by number, leases, free lanes, and the grants of its rate window.
local function lock_keys(name)
  return {
    name = name,
    lock = P .. 'lock:' .. name, waiters = P .. 'waiters:' .. name, holders = P .. 'holders:' .. name,
    leases = P .. 'leases:' .. name, lanes = P .. 'lanes:' .. name, grants = P .. 'grants:' .. name,
  }
end

local function ticket_key(id)
  return P .. 'ticket:' .. id
end

-- A ticket with a lane holds the lock; one without waits.
local function remove_ticket(keys, id, lane)
  if lane then
    if tonumber(lane) then
      call('ZADD', keys.lanes, lane, lane)
    end
    call('ZREM', keys.holders, id)
  else
    call('ZREM', keys.waiters, id)
  end
  call('ZREM', keys.leases, id)
  call('DEL', ticket_key(id))
end

-- Removes expired tickets; always the first step.
local function expire_tickets(keys)
  for _, id in ipairs(call('ZRANGEBYSCORE', keys.leases, '-inf', now_text)) do
    remove_ticket(keys, id, call('HGET', ticket_key(id), 'lane'))
  end
end

local function notify_ticket(id, after)
  call('PUBLISH', P .. 'tickets', id .. ' ' .. us(after))
end

-- Takes the smallest free lane: one that was given back, or a new one.
local function take_lane(keys)
  return call('ZPOPMIN', keys.lanes)[1] or call('HINCRBY', keys.lock, 'lanes', 1) - 1
end

-- Grants free places to the first waiters and notifies those other than the caller. Returns when a closed window opens.
local function grant_next(keys, asked)
  if call('ZCARD', keys.waiters) == 0 then
    return nil
  end
  local facts = call('HMGET', keys.lock, 'limit', 'per')
  local limit, per = tonumber(facts[1]) or 1, tonumber(facts[2])
  local free = limit - call('ZCARD', keys.holders)
  if per then
    call('ZREMRANGEBYSCORE', keys.grants, '-inf', us(now - per))
    free = math.min(free, limit - call('ZCARD', keys.grants))
  end
  if free > 0 then
    local heads = call('ZRANGE', keys.waiters, 0, free - 1, 'WITHSCORES')
    for i = 1, #heads, 2 do
      local id, number = heads[i], us(heads[i + 1])
      local lane = take_lane(keys)
      call('ZREM', keys.waiters, id)
      call('ZADD', keys.holders, number, id)
      call('HSET', ticket_key(id), 'granted_at', now_text, 'lane', lane)
      if per then
        call('ZADD', keys.grants, now_text, number)
      end
      if not asked[id] then
        notify_ticket(id, 0)
      end
    end
  end
  if not per then
    return nil
  end
  -- The first waiter before a closed window must know when it opens.
  local first = call('ZRANGE', keys.waiters, 0, 0)[1]
  local last = first and call('ZREVRANGE', keys.grants, limit - 1, limit - 1, 'WITHSCORES')[2]
  if not last then
    return nil
  end
  local opens = math.max(0, tonumber(last) + per - now)
  if not asked[first] then
    notify_ticket(first, opens)
  end
  return opens
end

-- Returns {state: 1 holds, 2 waits; token, lane, granted_at, place, check after}, or nil if there is no such ticket. The last two are
-- those of a holder; a waiter's are set by place_waiter.
local function ticket_status(id)
  local facts = call('HMGET', ticket_key(id), 'number', 'lane', 'granted_at')
  if not tonumber(facts[1]) then
    return nil
  end
  return {facts[3] and 1 or 2, tonumber(facts[1]), tonumber(facts[2]) or 0, tonumber(facts[3]) or 0, 0, -1}
end

-- Sets the place of a waiter, and after how many µs it should check: when the first lease `ahead` of it ends, or if it is the first,
-- when the window opens.
local function place_waiter(status, place, ahead, opens)
  local after = ahead and math.max(0, ahead - now) or -1
  if place == 1 and opens and (after < 0 or opens < after) then
    after = opens
  end
  status[5], status[6] = place, after
  return status
end
