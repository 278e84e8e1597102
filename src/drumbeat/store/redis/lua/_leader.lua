-- The leader of the cluster, in the hash `leader`. Leadership only saves work; correctness does not depend on it.
-- include: _prelude

local function give_up_lead(instance)
  if call('HGET', P .. 'leader', 'instance') == instance then
    call('HDEL', P .. 'leader', 'instance', 'until')
  end
end

-- Takes or renews the lead for `lease` from now. A lease that ends later than now + lease was given before the clock stepped back.
local function take_lead(instance, lease)
  local holder = call('HGET', P .. 'leader', 'instance')
  local ends = tonumber(call('HGET', P .. 'leader', 'until') or '0') or 0
  if holder and holder ~= instance and ends > now and ends <= now + lease then
    return
  end
  if holder ~= instance then
    safe_write('HINCRBY', P .. 'leader', 'term', 1)
    call('HSET', P .. 'leader', 'since', now_text)
  end
  call('HSET', P .. 'leader', 'instance', instance, 'until', us(now + lease))
end

-- Returns instance, term, since and until of the leader; false if there is none.
local function current_leader()
  local found = call('HMGET', P .. 'leader', 'instance', 'term', 'since', 'until')
  return found[1] and (tonumber(found[4]) or 0) > now and found
end
