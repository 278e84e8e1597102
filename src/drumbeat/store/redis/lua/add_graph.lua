-- Stores jobs with the edges to their parents, all or none.
-- KEYS: 1 the prefix
-- ARGV: 1 instance ('': no step), 2 id, 3 token, 4 field and 5 record of the step (steps.py); 6 workflow ('' for none), 7 its name, 8 labels,
-- 9 if it is to be the only live one of its name: 1; 10 number of kinds of edges, and of each if_fails, binding, argument; number of runs
-- of edges, and of each child, number of the kind, ids of the parents, concatenated; then new jobs (see _read_jobs.lua), if any
-- returns: stored, and of each job that was not stored its position and the id that stands for it, flat; or what prevented it: stale;
-- duplicate, the record; stored_before, position; held, position, holder; conflict, the live workflow; cancelled or unknown, a
-- workflow; missing, a parent, pruned_before
-- include: _handoff
-- include: _read_jobs
-- include: _dependencies

local at = 10
local function arg()
  at = at + 1
  return ARGV[at - 1]
end

local instance, step_of, workflow = ARGV[1], ARGV[2], ARGV[6]
if instance ~= '' then
  local score = safe_read('ZSCORE', P .. 'held:' .. instance, step_of)
  if not score or tonumber(score) ~= tonumber(ARGV[3]) then
    return {'stale'}
  end
  local record = safe_read('HGET', P .. 'steps:' .. step_of, ARGV[4])
  if record then
    return {'duplicate', record}
  end
end

local kinds = {}
for i = 1, tonumber(arg()) do
  kinds[tostring(i)] = {if_fails = arg(), binding = arg(), argument = arg(), facts = {}}
end
local runs_of, with_parents = {}, {}
for _ = 1, tonumber(arg()) do
  local child, kind, parents = arg(), kinds[arg()], arg()
  local runs = runs_of[child]
  if not runs then
    runs = {}
    runs_of[child], with_parents[#with_parents + 1] = runs, child
  end
  runs[#runs + 1] = {kind = kind, parents = parents, size = #parents / 16}
end
local ascend, jobs = true, {ids = {}, templates = {}, args = {}, keys = {}}
if at < #ARGV then
  ascend, jobs = read_jobs(at)
end

-- What is new.

local refused, asked = find_refused(jobs), jobs.ids
if #refused > 0 then
  jobs = without_refused(jobs, refused)
end
local ids, templates = jobs.ids, jobs.templates
local place_of = {}
for i, id in ipairs(ids) do
  place_of[id] = i
end

local is_new_workflow
do

-- Returns the first refused job whose key is held, if it matters: it is of a workflow or a step, or a new job waits for it.
local function find_held()
  local held = {}
  for i = 1, #refused, 2 do
    local id = asked[refused[i]]
    if refused[i + 1] ~= id and not place_of[id] then
      if workflow ~= '' or instance ~= '' then
        return refused[i], refused[i + 1]
      end
      held[id] = i
    end
  end
  for child, runs in pairs(next(held) and runs_of or {}) do
    for _, run in ipairs(place_of[child] and runs or {}) do
      for k = 1, #run.parents, 16 do
        local i = held[sub(run.parents, k, k + 15)]
        if i then
          return refused[i], refused[i + 1]
        end
      end
    end
  end
end

local function has_live_job(id)
  local high = '+'
  repeat
    local page = safe_read('ZREVRANGEBYLEX', P .. 'workflow_jobs:' .. id, high, '-', 'LIMIT', 0, CHUNK) or {}
    local bodies, dones = fetch('job:', page), fetch('ended:', page)
    for i = 1, #page do
      if bodies[i] and not dones[i] then
        return true
      end
    end
    high = page[1] and '(' .. page[#page]
  until not high
  return false
end

-- Returns a live workflow of this name; forgets those that have ended.
local function find_live_workflow(name)
  for _, id in ipairs(safe_read('ZREVRANGE', P .. 'open_workflows:' .. name, 0, -1) or {}) do
    if has_live_job(id) then
      return id
    end
    safe_write('ZREM', P .. 'open_workflows:' .. name, id)
  end
end

-- Returns why the workflows of new jobs do not take them, or nil.
is_new_workflow = workflow ~= '' and call('EXISTS', P .. 'workflow:' .. workflow) == 0
local function check_workflows()
  local other = is_new_workflow and ARGV[9] == '1' and find_live_workflow(ARGV[7])
  if other then
    return {'conflict', other}
  end
  local checked = {[''] = true}
  for _, template in ipairs(templates) do
    local id = template.workflow
    if not checked[id] then
      checked[id] = true
      if is_workflow_cancelled(id) then
        return {'cancelled', id}
      end
      if not (is_new_workflow and id == workflow) and call('EXISTS', P .. 'workflow:' .. id) == 0 then
        return {'unknown', id}
      end
    end
  end
end

-- A new workflow has no job that is stored already, by itself or in another one.
for i = 1, is_new_workflow and #refused or 0, 2 do
  if refused[i + 1] == asked[refused[i]] then
    return {'stored_before', refused[i]}
  end
end
local position, holder = find_held()
if position then
  return {'held', position, holder}
end
local problem = check_workflows()
if problem then
  return problem
end

end

-- The parents of new jobs.

local function each_edge(visit)
  for _, child in ipairs(with_parents) do
    local i = place_of[child]
    for _, run in ipairs(i and runs_of[child] or {}) do
      for k = 1, #run.parents, 16 do
        visit(child, i, run.kind, sub(run.parents, k, k + 15))
      end
    end
  end
end

local known
do
local existing, is_asked = {}, {}
each_edge(function(_, _, _, parent)
  if not place_of[parent] and not is_asked[parent] then
    is_asked[parent], existing[#existing + 1] = true, parent
  end
end)
known = load_parents(existing)
for _, parent in ipairs(existing) do
  if not known[parent] then
    return {'missing', parent, call('HGET', P .. 'meta', 'pruned_before')}
  end
end
end

-- The facts of each edge, by child; its children, by parent: one, or a list.
local open, blamed, facts_of, parents_of, kids, bound, parents = {}, {}, {}, {}, {}, {}, {}
local kept = {}
local function link(child, i, kind, parent)
  local facts, is_open, old = nil, true, known[parent]
  if old then
    local verdict = judge_edge(kind.if_fails, old.life, old.state, old.life, old.is_letter)
    is_open = verdict == 'nothing'
    blamed[i] = blamed[i] or (verdict == 'cancel' and parent) or nil
    if verdict == 'met' and kind.binding ~= '' then
      kept[parent] = true
    end
    local name = format('%d', old.life) .. verdict
    facts = kind.facts[name] or format('%d,%s,%s,%s,%s', old.life, kind.if_fails, kind.binding, verdict == 'met' and 'm' or '', kind.argument)
    kind.facts[name] = facts
  else
    facts = kind.facts.new or '0,' .. kind.if_fails .. ',' .. kind.binding .. ',,' .. kind.argument
    kind.facts.new = facts
  end
  open[i] = (open[i] or 0) + (is_open and 1 or 0)
  local list, names = facts_of[i], parents_of[i]
  if not list then
    list, names = {}, {}
    facts_of[i], parents_of[i] = list, names
  end
  list[#list + 1], names[#names + 1] = facts, parent
  if kind.binding ~= '' then
    bound[parent] = true
  end
  local kid = kids[parent]
  if not kid then
    kids[parent], parents[#parents + 1] = child, parent
  elseif type(kid) == 'table' then
    kid[#kid + 1] = child
  else
    kids[parent] = {kid, child}
  end
end
each_edge(link)

-- Writes. The first one adds data, so that a full server refuses the whole call.

local waits = {}
for i, number in pairs(open) do
  waits[i] = number > 0 or blamed[i] ~= nil
end
local claims, given = {}, nil
if #ids > 0 then
  claims, given = assign_to_claims(templates, jobs.args, open)
  for i, is_waiting in pairs(waits) do
    given = given or {}
    given[i] = is_waiting or nil
  end
  insert_jobs(ids, templates, jobs.args, jobs.keys, ascend, given)
  hand_off(claims, ids, given)
end
if is_new_workflow then
  safe_write('HSET', P .. 'workflow:' .. workflow, 'name', ARGV[7], 'labels', ARGV[8], 'created_at', now_text)
  safe_write('ZADD', P .. 'workflows', 0, workflow)
  safe_write('ZADD', P .. 'workflows_of:' .. ARGV[7], 0, workflow)
  safe_write('ZADD', P .. 'open_workflows:' .. ARGV[7], 0, workflow)
end
if instance ~= '' then
  safe_write('HSETNX', P .. 'steps:' .. step_of, ARGV[4], ARGV[5])
end

-- A script has at most 200 locals.
do

-- The text of a child with several parents: a line for each run of those that are bound alike.
local function format_runs(child)
  local lines, size, last = {'+'}, 0, nil
  for _, run in ipairs(runs_of[child]) do
    local line = ',' .. run.kind.binding .. ',' .. run.kind.argument .. '\n'
    if last and line ~= last then
      lines[#lines + 1] = format('%d', size) .. last
      size = 0
    end
    last, size = line, size + run.size
  end
  lines[#lines + 1] = format('%d', size) .. last
  return table.concat(lines)
end

local function binds_any(child)
  for _, run in ipairs(runs_of[child]) do
    if run.kind.binding ~= '' then
      return true
    end
  end
  return false
end

local function write_children()
  local states, since, queues, total, children = {}, {}, {}, 0, {}
  for _, child in ipairs(with_parents) do
    local i = place_of[child]
    if i then
      children[#children + 1] = child
      local template = templates[i]
      append(states, child, format_live_state({
        run_at = template.due, token = 0, failures = 0, crashes = 0, replays = 0, error = '', blocked_on = waits[i] and 'parents' or '',
        blocked_since = waits[i] and now or nil, open = open[i], binds = binds_any(child),
      }))
      if waits[i] then
        append(since, now_text, child)
        queues[template.queue] = (queues[template.queue] or 0) + 1
        total = total + 1
      end
    end
  end
  for_each_bucket(children, function(name, first, last)
    local list = {}
    for n = first, last do
      local child, i = children[n], place_of[children[n]]
      local facts, names = facts_of[i], parents_of[i]
      append(list, child, #facts == 1 and '1' .. names[1] .. facts[1] or format_runs(child))
      if #facts > 1 then
        local pairs_of = {}
        for m, text in ipairs(facts) do
          pairs_of[2 * m - 1], pairs_of[2 * m] = names[m], text
        end
        bulk('HSET', P .. 'edges:' .. child, pairs_of)
        bulk('RPUSH', P .. 'places:' .. child, names)
      end
    end
    bulk('HSET', P .. 'edge:' .. name, list)
  end)
  bulk('HSET', P .. 'live_state', states)
  bulk('ZADD', P .. 'blocked_since:parents', since)
  if total > 0 then
    safe_write('HINCRBY', P .. 'blocked_on', 'parents', total)
  end
  for queue, n in pairs(queues) do
    safe_write('HINCRBY', P .. 'blocked_counts', queue, n)
  end
end

local function write_parents()
  local before, live = fetch('kid:', parents), {}
  for_each_bucket(parents, function(name, first, last)
    local list = {}
    for n = first, last do
      local parent, kid, others = parents[n], before[n], kids[parents[n]]
      local flag = (bound[parent] or is_bound(kid)) and 'b' or ''
      if not kid and type(others) == 'string' then
        append(list, parent, others .. flag)
      else
        local line = {}
        for _, child in ipairs(type(others) == 'string' and {others} or others) do
          line[#line + 1] = '0'
          line[#line + 1] = child
        end
        if kid and #kid >= 16 then
          append(line, '0', sub(kid, 1, 16))
        end
        bulk('ZADD', P .. 'kids:' .. parent, line)
        append(list, parent, flag)
      end
      if not known[parent] or known[parent].state == 'live' then
        live[#live + 1] = parent
      end
    end
    bulk('HSET', P .. 'kid:' .. name, list)
  end)
  bulk('SADD', P .. 'parents', live)
  local ended, texts = {}, {}
  for parent in pairs(kept) do
    ended[#ended + 1], texts[#texts + 1] = parent, format_kept(known[parent].task, known[parent].done)
  end
  keep_results(ended, texts)
end

-- Cancels what a failed parent cancels, and what that does to other jobs of this call, now: no other job waits for them.
local function cancel_blamed()
  own_releases = {}
  for i, parent in pairs(blamed) do
    local old = known[parent]
    local event = old.state == 'dead' and (old.is_letter and 'died' or 'discarded') or 'cancelled'
    cancel_waiting(ids[i], parent_failure(parent, old.task, event), parent)
  end
  while #own_releases > 0 do
    local texts = own_releases
    own_releases = {}
    repeat
      local done, rest, steps = take_steps(texts, MAX_ADVANCED)
      local left = {}
      for i = done + 1, #texts do
        left[#left + 1] = texts[i]
      end
      texts = left
      if rest then
        texts[1] = rest
      end
      follow(steps)
    until #texts == 0
  end
  own_releases = nil
end

if #parents > 0 then
  links = true
  write_children()
  write_parents()
  if next(blamed) then
    cancel_blamed()
  end
end

end
serve_parked_claims()
flush_effects()
return {'stored', refused}
