-- Writes new jobs.
-- include: _base
-- include: _uniqueness
-- include: _edges
-- include: _lanes

-- Returns the time of an expiry: as it is written in a body, or nil.
local function expiry_time(text, due)
  return sub(text, 1, 1) == '+' and due + tonumber(sub(text, 2)) or tonumber(text)
end

-- Remembers when a job expires, for the sweep; whatever becomes of it, until then.
local function note_expiry(id, expires_at)
  if expires_at then
    safe_write('ZADD', P .. 'expiring', us(expires_at), id)
  end
end

-- A template holds what jobs of one call have in common: TEMPLATE_SIZE values from `at` on:
--     queue, priority, delay (or '@' and run_at), expires_at (or '+' and how long after it is due; '' for never), flag, task, the
--     head up to the key, the head after the key, parent (or ''), workflow (or ''), lane (or '')
-- For jobs without a key the head is whole in the first part.
local TEMPLATE_SIZE = 11
local function read_template(at)
  local when, flag = ARGV[at + 2], ARGV[at + 4]
  local due = sub(when, 1, 1) == '@' and tonumber(sub(when, 2)) or now + tonumber(when)
  return {
    due_key = due_key(ARGV[at], ARGV[at + 1], ARGV[at + 10] ~= '' and ARGV[at + 10]), queue = ARGV[at], priority = tonumber(ARGV[at + 1]), due = due, score = us(due), flag = flag,
    expires_at = expiry_time(ARGV[at + 3], due),
    task = ARGV[at + 5], head = flag .. '[' .. now_text .. ',' .. us(due) .. ',' .. ARGV[at + 6], rest = ARGV[at + 7],
    parent = ARGV[at + 8], workflow = ARGV[at + 9], lane = ARGV[at + 10] ~= '' and ARGV[at + 10] or nil,
  }
end

-- Adds new jobs to the lists of their parents. A list keeps the newest 10,000, and expires: a job may run for months.
local MAX_CHILDREN, CHILDREN_RETENTION = 10000, 30 * 86400
local function record_children(children)
  for parent, line in pairs(children) do
    local list = P .. 'children:' .. parent
    bulk('ZADD', list, line)
    call('ZREMRANGEBYRANK', list, 0, -MAX_CHILDREN - 1)
    call('EXPIRE', list, CHILDREN_RETENTION)
  end
end

-- Adds new jobs to their workflows.
local function record_members(members)
  for workflow, line in pairs(members) do
    bulk('ZADD', P .. 'workflow_jobs:' .. workflow, line)
    safe_write('ZADD', P .. 'workflows', 0, workflow)
    reopen_workflow(workflow)
  end
end

-- Writes new jobs without conflicts: lists of ids, templates, args, and keys (by position, where there is one).
-- ascend: the ids ascend. given (or nil): positions of jobs that enter no index, because a parked claim gets them at once
-- (_handoff.lua) or they wait for parents; their bodies are put there. The first write adds data, so that a full server refuses the whole call.
local function insert_jobs(ids, templates, args, keys, ascend, given)
  local lines, tasks, names, waiting, last_waiting, children, members = {}, {}, {}, {}, nil, {}, {}
  for_each_bucket(ids, function(name, first, last)
    local list, n = {}, 0
    for i = first, last do
      local template = templates[i]
      local body = template.head
      if keys[i] then
        body = body .. cjson.encode(keys[i]) .. template.rest
      end
      body = body .. args[i]
      list[n + 1], list[n + 2] = ids[i], body
      n = n + 2
      if given and given[i] then
        given[i] = body
      end
    end
    bulk('HSET', P .. 'job:' .. name, list)
    record_ids(name, ids, first, last, ascend)
    names[name] = true
  end)
  for name in pairs(names) do
    call('ZADD', P .. 'buckets', tonumber(name, 16), name)
  end
  for i, id in ipairs(ids) do
    local template = templates[i]
    if not (given and given[i]) then
      local line = lines[template.due_key]
      if not line then
        line = {n = 0, template = template}
        lines[template.due_key] = line
      end
      line[line.n + 1], line[line.n + 2] = template.score, id
      line.n = line.n + 2
      if template ~= last_waiting then
        waiting[template], last_waiting = true, template
      end
    end
    tasks[template] = (tasks[template] or 0) + 1
    note_expiry(id, template.expires_at)
    if template.parent ~= '' then
      local line = children[template.parent] or {}
      children[template.parent] = line
      append(line, '0', id)
    end
    if template.workflow ~= '' then
      local line = members[template.workflow] or {}
      members[template.workflow] = line
      line[#line + 1] = '0'
      line[#line + 1] = id
    end
    if keys[i] then
      add_key(key_field(template.flag, template.task, keys[i]), id)
    end
  end
  local places, queues = {}, {}
  for _, line in pairs(lines) do
    if line.template.lane then
      places[#places + 1] = {line.template.queue, line.template.lane}
    end
  end
  if #places > 1 then
    lanes().prepare(places)
  end
  for key, line in pairs(lines) do
    local template = line.template
    if template.lane then
      lanes().enter(template.queue, template.lane, template.priority, line, function() return now_text end)
    else
      bulk('ZADD', key, line)
    end
  end
  record_children(children)
  record_members(members)
  for template, n in pairs(tasks) do
    if not queues[template.queue] then
      queues[template.queue] = true
      call('SADD', P .. 'queues', template.queue)
    end
    if template.lane then
      note_lanes(template.queue)
    end
    add_to_counter(template.task, 'live', n)
    if waiting[template] and not template.lane then  -- lanes say for themselves when they are ready
      wake_at(template.due)
    end
  end
end
