-- Returns records of workflows.
-- KEYS: 1 the prefix
-- ARGV: ids
-- returns: of each name, labels, created_at, cancelled_at; nothing of one that does not exist
-- include: _base

local found = {}
for i, id in ipairs(ARGV) do
  local facts = safe_read('HMGET', P .. 'workflow:' .. id, 'name', 'labels', 'created_at', 'cancelled_at')
  found[i] = facts and facts[1] and facts or false
end
return found
