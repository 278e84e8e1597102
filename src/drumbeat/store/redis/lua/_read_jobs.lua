-- Reads new jobs from ARGV, and finds those that are not stored.
-- include: _insert_jobs

-- From ARGV[at] on: 1 if the ids ascend, else 0; number of templates, the templates (see _insert_jobs.lua), then for each run of jobs
-- of one template: its number, how many jobs, and of each id, args, and its key if the template's flag is not '-'; up to ARGV[last].
-- Returns whether the ids ascend, and lists of ids, templates, args and keys.
local function read_jobs(at, last)
  local ascend, templates = ARGV[at] == '1', {}
  local number_of_templates = tonumber(ARGV[at + 1])
  at = at + 2
  for number = 1, number_of_templates do
    templates[tostring(number)] = read_template(at)
    at = at + TEMPLATE_SIZE
  end
  local ids, template_of, args, keys, n = {}, {}, {}, {}, 0
  local total = last or #ARGV
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
  return ascend, {ids = ids, templates = template_of, args = args, keys = keys}
end

-- Returns positions of jobs that are not stored, each with the id that stands for it, flat: an id that exists anywhere, or a unique
-- key that is held. Nearly always there are none, and the lists are used as they are.
local function find_refused(jobs)
  local known, seen, taken, refused = fetch('job:', jobs.ids), {}, {}, {}
  for i, id in ipairs(jobs.ids) do
    local template = jobs.templates[i]
    local flag = template.flag
    if known[i] or seen[id] then
      append(refused, i, id)
    elseif flag == 'l' or flag == 'p' then
      local field = key_field(flag, template.task, jobs.keys[i])
      local other, added = find_key_holder(flag, template.task, jobs.keys[i]), taken[field]
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
  return refused
end

local function without_refused(jobs, refused)
  local out, left, m = {}, {ids = {}, templates = {}, args = {}, keys = {}}, 0
  for i = 1, #refused, 2 do
    out[refused[i]] = true
  end
  for i, id in ipairs(jobs.ids) do
    if not out[i] then
      m = m + 1
      left.ids[m], left.templates[m], left.args[m], left.keys[m] = id, jobs.templates[i], jobs.args[i], jobs.keys[i]
    end
  end
  return left
end
