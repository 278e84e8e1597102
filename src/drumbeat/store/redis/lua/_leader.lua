-- The leader of the cluster, in the hash `leader`. Leadership only saves work; correctness does not depend on it.

local function give_up_lead(prefix, instance)
  if redis.call('HGET', prefix .. 'leader', 'instance') == instance then
    redis.call('HDEL', prefix .. 'leader', 'instance', 'until')
  end
end

-- Takes or renews the lead for `lease` from now. A lease that ends later than now + lease was given before the clock stepped back.
local function take_lead(prefix, instance, now, lease)
  local holder = redis.call('HGET', prefix .. 'leader', 'instance')
  local ends = tonumber(redis.call('HGET', prefix .. 'leader', 'until') or '0') or 0
  if holder and holder ~= instance and ends > now and ends <= now + lease then
    return
  end
  if holder ~= instance then
    local term = redis.pcall('HINCRBY', prefix .. 'leader', 'term', 1)
    if type(term) == 'table' then  -- damaged counter
      redis.call('HSET', prefix .. 'leader', 'term', 1)
    end
    redis.call('HSET', prefix .. 'leader', 'since', string.format('%.0f', now))
  end
  redis.call('HSET', prefix .. 'leader', 'instance', instance, 'until', string.format('%.0f', now + lease))
end
