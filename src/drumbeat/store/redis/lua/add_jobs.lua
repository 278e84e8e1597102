-- Stores jobs, all or none. An id that exists anywhere is not stored again, nor is a unique job whose key is held.
-- KEYS: 1 the prefix
-- ARGV: 1 if the ids ascend: 1, else 0; 2 number of templates, the templates (see _insert_jobs.lua), then for each run of jobs of
-- one template: its number, how many jobs, and of each id, args, and its key if the template's flag is not '-'
-- returns: now, and for each job that was not stored its position and the id that stands for it, flat
-- include: _handoff

local templates, at = {}, 3
for number = 1, tonumber(ARGV[2]) do
  templates[tostring(number)] = read_template(at)
  at = at + TEMPLATE_SIZE
end

local ids, template_of, args, keys, n = {}, {}, {}, {}, 0
local total = #ARGV
while at <= total do
  local template, size = templates[ARGV[at]], tonumber(ARGV[at + 1])
  local width = template.flag == '-' and 2 or 3
  at = at + 2
  for _ = 1, size do
    n = n + 1
    ids[n], template_of[n], args[n] = ARGV[at], template, ARGV[at + 1]
    if width == 3 then
      keys[n] = ARGV[at + 2]
    end
    at = at + width
  end
end

local known = fetch('job:', ids)
local seen, taken, refused = {}, {}, {}
-- Nearly always nothing is refused, and the lists are used as they are.
for i, id in ipairs(ids) do
  local flag = template_of[i].flag
  if known[i] or seen[id] then
    append(refused, i, id)
  elseif flag == 'l' or flag == 'p' then
    local task = template_of[i].task
    local field = key_field(flag, task, keys[i])
    local other, added = find_key_holder(flag, task, keys[i]), taken[field]
    if added and (not other or is_smaller_id(added, other)) then
      other = added
    end
    if other then
      append(refused, i, other)
    else
      taken[field], seen[id] = id, true
    end
  else
    seen[id] = true
  end
end

if #refused > 0 then
  local out, left = {}, {ids = {}, templates = {}, args = {}, keys = {}}
  for i = 1, #refused, 2 do
    out[refused[i]] = true
  end
  local m = 0
  for i, id in ipairs(ids) do
    if not out[i] then
      m = m + 1
      left.ids[m], left.templates[m], left.args[m], left.keys[m] = id, template_of[i], args[i], keys[i]
    end
  end
  ids, template_of, args, keys = left.ids, left.templates, left.args, left.keys
end
if #ids > 0 then
  local claims, given = assign_to_claims(template_of, args)
  insert_jobs(ids, template_of, args, keys, ARGV[1] == '1', given)
  hand_off(claims, ids, given)
  flush_effects()
end
return {now, refused}
