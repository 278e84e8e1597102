-- Deletes messages that were not taken in time. An inbox is ordered by time.
-- KEYS: 1 the prefix
-- ARGV: 1 age (µs), 2 limit, then instances whose inboxes are kept
-- returns: how many
-- flags: allow-oom
-- include: _inbox
local till, most, kept, pruned = now - ARGV[1], tonumber(ARGV[2]), {}, 0
for i = 3, #ARGV do
  kept[ARGV[i]] = true
end
for _, instance in ipairs(call('SMEMBERS', P .. 'inboxes')) do
  local inbox = P .. 'inbox:' .. instance
  while not kept[instance] and pruned < most do
    local first = try('LINDEX', inbox, 0)
    if type(first) == 'table' then call('DEL', inbox) end
    if type(first) ~= 'string' or (tonumber(match(first, '^%d+')) or 0) > till then break end
    call('LPOP', inbox)
    pruned = pruned + 1
  end
  forget_empty_inbox(instance)
end
return pruned
