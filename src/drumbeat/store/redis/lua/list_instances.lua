-- Lists instances.
-- KEYS: 1 the prefix
-- ARGV: 1 with ended instances: 1, else 0
-- returns: id and the hash inst:<id> (flat) of each, flat
-- include: _prelude
local found = {}
for _, index in ipairs(ARGV[1] == '1' and {'alive', 'gone'} or {'alive'}) do
  for _, id in ipairs(call('ZRANGE', P .. index, 0, -1)) do
    append(found, id, safe_read('HGETALL', P .. 'inst:' .. id) or {})
  end
end
return found
