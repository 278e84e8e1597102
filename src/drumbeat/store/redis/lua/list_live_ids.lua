-- Lists the ids of live jobs, if there are few.
-- KEYS: 1 the prefix
-- ARGV: 1 which: running (however many), pending, ready, scheduled (all that are due later), retrying (all that have a
-- live state), waiting; 2 limit; 3 only of this queue ('' for any)
-- returns: ids, or nothing if there are more
-- include: _base
-- include: _lane_counts

local which, few = ARGV[1], tonumber(ARGV[2])
local ids = {}
local function add(some)
  if #ids + #some > few then
    return false
  end
  extend(ids, some)
  return true
end

if which == 'running' then
  for _, instance in ipairs(call('ZRANGE', P .. 'alive', 0, -1)) do
    extend(ids, safe_read('ZRANGE', P .. 'held:' .. instance, 0, -1) or {})
  end
  return ids
end
if which == 'retrying' then
  return call('HLEN', P .. 'live_state') <= few and call('HKEYS', P .. 'live_state')
end
if which ~= 'waiting' then
  local least = which == 'scheduled' and '(' .. now_text or '-inf'
  local most = which == 'ready' and now_text or '+inf'
  for _, queue in ipairs(ARGV[3] ~= '' and {ARGV[3]} or call('SMEMBERS', P .. 'queues')) do
    for priority = 0, 9 do
      local key = due_key(queue, priority)
      if #ids + (safe_read('ZCOUNT', key, least, most) or 0) > few or not add(safe_read('ZRANGEBYSCORE', key, least, most) or {}) then
        return false
      end
    end
    local of_lanes = has_lanes() and ids_in_lanes(queue, which, few - #ids)
    if of_lanes == nil or (of_lanes and not add(of_lanes)) then
      return false
    end
  end
end
if which == 'waiting' or which == 'pending' then
  for _, reason in ipairs(call('HKEYS', P .. 'blocked_on')) do
    if not add(safe_read('ZRANGE', P .. 'blocked_since:' .. reason, 0, few) or {}) then
      return false
    end
  end
end
return ids
