-- Stores jobs, all or none. An id that exists anywhere is not stored again, nor is a unique job whose key is held.
-- KEYS: 1 the prefix
-- ARGV: 1 if the ids ascend: 1, else 0; 2 how many kinds, the kinds (see _adding.lua), then for each run of jobs of one kind: its number, how many jobs, and of each
-- id, args, and its key if the kind's flag is not '-'
-- returns: now, and for each job that was not stored its position and the id that stands for it, flat
-- include: _giving

local kinds, at = {}, 3
for number = 1, tonumber(ARGV[2]) do
  kinds[tostring(number)] = read_kind(at)
  at = at + KIND
end

local ids, kind_of, args, keys, n = {}, {}, {}, {}, 0
local total = #ARGV
while at <= total do
  local kind, size = kinds[ARGV[at]], tonumber(ARGV[at + 1])
  local width = kind.flag == '-' and 2 or 3
  at = at + 2
  for _ = 1, size do
    n = n + 1
    ids[n], kind_of[n], args[n] = ARGV[at], kind, ARGV[at + 1]
    if width == 3 then
      keys[n] = ARGV[at + 2]
    end
    at = at + width
  end
end

local known = fetch('job:', ids)
local seen, taken, refused = {}, {}, {}
-- Where nothing is refused, which is nearly always so, the lists are taken as they are.
local function refuse(position, id)
  refused[#refused + 1] = position
  refused[#refused + 1] = id
end
for i, id in ipairs(ids) do
  local flag = kind_of[i].flag
  if known[i] or seen[id] then
    refuse(i, id)
  elseif flag == 'l' or flag == 'p' then
    local task = kind_of[i].task
    local field = key_field(flag, task, keys[i])
    local other = taken[field] or holder(flag, task, keys[i])
    if other then
      refuse(i, other)
    else
      taken[field], seen[id] = id, true
    end
  else
    seen[id] = true
  end
end

if #refused > 0 then
  local out, left = {}, {ids = {}, kinds = {}, args = {}, keys = {}}
  for i = 1, #refused, 2 do
    out[refused[i]] = true
  end
  local m = 0
  for i, id in ipairs(ids) do
    if not out[i] then
      m = m + 1
      left.ids[m], left.kinds[m], left.args[m], left.keys[m] = id, kind_of[i], args[i], keys[i]
    end
  end
  ids, kind_of, args, keys = left.ids, left.kinds, left.args, left.keys
end
if #ids > 0 then
  local claims, given = takers(kind_of, args)
  write_jobs(ids, kind_of, args, keys, ARGV[1] == '1', given)
  give(claims, ids, given)
  settle_up()
end
return {now, refused}
