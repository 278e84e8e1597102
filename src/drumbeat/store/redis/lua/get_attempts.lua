-- The ended runs of some jobs.
-- KEYS: 1 the prefix
-- ARGV: ids
-- returns: for each id the earlier runs, and how the job ended, if it did
-- include: _base

local found = {}
for i, id in ipairs(ARGV) do
  found[i] = {safe_read('LRANGE', P .. 'attempts:' .. id, 0, -1) or {}, safe_read('HGET', P .. 'ended:' .. bucket(id), id)}
end
return found
