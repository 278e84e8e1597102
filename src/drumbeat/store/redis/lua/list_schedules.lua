-- Lists schedules by name.
-- KEYS: 1 the prefix
-- ARGV: 1 only those after this name, 2 limit, 3 with retired ones: 1, else 0
-- returns: the fields of each (see _schedule.lua: schedule_fields)
-- include: _schedule

local found, after, limit = {}, ARGV[1], tonumber(ARGV[2])
while #found < limit do
  local names = call('ZRANGEBYLEX', P .. 'schedules', '(' .. after, '+', 'LIMIT', 0, CHUNK)
  for _, name in ipairs(names) do
    local fields = #found < limit and schedule_fields(name)
    if fields and (ARGV[3] == '1' or fields[2] ~= 'retired') then
      found[#found + 1] = {name, fields}
    end
    after = name
  end
  if #names < CHUNK then
    break
  end
end
return found
