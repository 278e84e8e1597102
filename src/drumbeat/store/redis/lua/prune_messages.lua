-- Deletes messages that were not taken in time. An inbox is ordered by time.
-- KEYS: 1 the prefix
-- ARGV: 1 age (µs), 2 limit, then instances whose inboxes are kept
-- returns: how many
-- flags: allow-oom
-- touches: inbox:<instance>, inboxes
local p, time = KEYS[1], redis.call('TIME')
local till, most, but = time[1] * 1000000 + time[2] - ARGV[1], tonumber(ARGV[2]), {}
for i = 3, #ARGV do
  but[ARGV[i]] = true
end
local pruned = 0
for _, instance in ipairs(redis.call('SMEMBERS', p .. 'inboxes')) do
  local inbox = p .. 'inbox:' .. instance
  while not but[instance] and pruned < most do
    local first = redis.pcall('LINDEX', inbox, 0)
    if type(first) == 'table' then redis.call('DEL', inbox) end
    if type(first) ~= 'string' or (tonumber(string.match(first, '^%d+')) or 0) > till then break end
    redis.call('LPOP', inbox)
    pruned = pruned + 1
  end
  if redis.call('EXISTS', inbox) == 0 then
    redis.call('SREM', p .. 'inboxes', instance)
  end
end
return pruned
