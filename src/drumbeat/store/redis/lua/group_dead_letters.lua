-- Groups dead letters by task and error.
-- KEYS: 1 the prefix
-- ARGV: 1 only ids below this one, or '', 2 how many to examine
-- returns: the last id examined ('' at the end), then of each group: {task, type of the error, how many, when the first
-- and the last died (µs, as text), the last one's id}
-- include: _base

local from = ARGV[1] == '' and '+' or '(' .. ARGV[1]
local ids = call('ZREVRANGEBYLEX', P .. 'dead', from, '-', 'LIMIT', 0, ARGV[2])
local bodies, dones, groups, list = fetch('job:', ids), fetch('ended:', ids), {}, {ids[#ids] or ''}

-- Returns when it died and the type of its error. Tracebacks are long: decoded only where the pattern finds nothing.
local DEATH = '^%[(%-?%d+),"%a+",[^,]*,[^,]*,[^,]*,%d+,null,null,{"type":"([^"\\]*)"'
local function parse_death(done)
  local at, kind = match(done, DEATH)
  if at then
    return at, kind
  end
  local record = decode_table(match(done, '^[^\n]*'))
  local failure = record[9]
  if type(failure) == 'table' and type(failure.type) == 'string' then
    return match(done, '%-?%d+') or '0', failure.type
  end
  return match(done, '%-?%d+') or '0', record[1] and '' or 'Undecodable'
end

for i, id in ipairs(ids) do
  if bodies[i] and dones[i] then
    local task, at, kind = match(bodies[i], TASK_PATTERN) or 'undecodable', parse_death(dones[i])
    local name, moment = task .. '\0' .. kind, tonumber(at)
    local group = groups[name]
    if not group then
      group = {task, kind, 0, at, at, id}
      groups[name], list[#list + 1] = group, group
    end
    group[3] = group[3] + 1
    if moment < tonumber(group[4]) then group[4] = at end
    -- Of several with the same time the greatest id, which comes first.
    if moment > tonumber(group[5]) then group[5], group[6] = at, id end
  end
end
return list
