-- Ids of all pending jobs, if they are few.
-- KEYS: 1 the prefix
-- ARGV: 1 how many are few
-- returns: ids, or nothing if there are more
-- include: _base

local ids, few = {}, tonumber(ARGV[1])
local function add(key)
  if #ids + call('ZCARD', key) <= few then
    for _, id in ipairs(call('ZRANGE', key, 0, -1)) do
      ids[#ids + 1] = id
    end
    return true
  end
  return false
end
for _, queue in ipairs(call('SMEMBERS', P .. 'queues')) do
  for priority = 0, 9 do
    if not add(due_key(queue, priority)) then return false end
  end
end
for _, why in ipairs(call('HKEYS', P .. 'waiting')) do
  if not add(P .. 'waits:' .. why) then return false end
end
return ids
