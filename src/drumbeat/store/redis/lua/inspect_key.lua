-- Ids of all live jobs of a task and key.
-- KEYS: 1 the prefix
-- ARGV: 1 task, 2 key
-- returns: ids
-- include: _keys

local ids = key_ids(key_field('u', ARGV[1], ARGV[2]))
for _, id in ipairs(key_ids(key_field('k', ARGV[1], ARGV[2]))) do
  ids[#ids + 1] = id
end
return ids
