-- Reads the signals of jobs.
-- KEYS: 1 the prefix
-- ARGV: ids
-- returns: for each the fields and records of signals:<id>, flat
-- include: _prelude

local found = {}
for i, id in ipairs(ARGV) do
  found[i] = safe_read('HGETALL', P .. 'signals:' .. id) or {}
end
return found
