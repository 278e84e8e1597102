-- Reads the steps of jobs.
-- KEYS: 1 the prefix
-- ARGV: ids
-- returns: for each the fields and records of steps:<id>, flat
-- include: _prelude

local found = {}
for i, id in ipairs(ARGV) do
  found[i] = safe_read('HGETALL', P .. 'steps:' .. id) or {}
end
return found
