-- Lists the ids of all running jobs.
-- KEYS: 1 the prefix
-- ARGV: none
-- returns: ids
-- include: _base

local ids = {}
for _, instance in ipairs(call('ZRANGE', P .. 'alive', 0, -1)) do
  for _, id in ipairs(safe_read('ZRANGE', P .. 'held:' .. instance, 0, -1) or {}) do
    ids[#ids + 1] = id
  end
end
return ids
