-- Lists the ids of all live jobs of a key, if there are few.
-- KEYS: 1 the prefix
-- ARGV: 1 task ('' for any), 2 key, 3 limit
-- returns: ids, or nothing if there are more
-- include: _uniqueness

local tasks, ids, few = {}, {}, tonumber(ARGV[3])
if ARGV[1] ~= '' then
  tasks[ARGV[1]] = true
else
  for _, field in ipairs(call('HKEYS', P .. 'count')) do
    local task = match(field, '^([^%z]*)%zlive$')
    if task then
      tasks[task] = true
    end
  end
end
for task in pairs(tasks) do
  for _, flag in ipairs({'u', 'k'}) do
    local field = key_field(flag, task, ARGV[2])
    if #ids + (safe_read('SCARD', P .. 'keyset:' .. field) or 0) + 1 > few then
      return false
    end
    extend(ids, key_ids(field))
  end
end
return ids
