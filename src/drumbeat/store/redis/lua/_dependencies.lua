-- Follows the releases of parents that have ended: the only thing that touches their children. See core/dependencies.py.
-- include: _find_job

-- A script has at most 200 locals: what only this file needs is in the block below.
local MAX_ADVANCED = 1000
local parent_failure, cancel_waiting, load_parents, judge_anew, judge_child, find_facts, children_of, take_steps, follow, advance
do

local byte, ONE = string.byte, string.byte('1')
-- As HEADER_PATTERN, one capture for queue and priority.
local QUEUE_PATTERN = '^.%[%-?%d+,%-?%d+,"[^"]*","([^"]*",%d)'
local WORKFLOW_CANCELLED = '{"type":"WorkflowCancelled","message":"its workflow was cancelled"}'
local EVENTS = {died = 'died', cancelled = 'was cancelled', discarded = 'was discarded'}

parent_failure = function(parent, task, event)
  local hex = string.gsub(parent, '.', function(byte) return format('%02x', string.byte(byte)) end)
  local id = table.concat({sub(hex, 1, 8), sub(hex, 9, 12), sub(hex, 13, 16), sub(hex, 17, 20), sub(hex, 21)}, '-')
  return '{"type":"ParentFailed","message":"its parent ' .. id .. ' (task ' .. task .. ') ' .. (EVENTS[event] or event) .. '"}'
end

-- Returns the parent of a release and what it says, nil if that cannot be read: one table for all releases that say the same.
local sayings = {}
local function read_release(text)
  local rest = sub(text, 17)
  local said = sayings[rest]
  if said == nil then
    local event, life, task, after = match(rest, '^(%l+),(%d+),([^\n]*)\n(.*)$')
    said = event and {event = event, life = tonumber(life), task = task, after = after, effects = {}}
    sayings[rest] = said or false
  end
  return sub(text, 1, 16), said or nil
end

local function effect_of(said, facts)
  local effect = said.effects[facts]
  if not effect then
    effect = not facts.is_met and edge_effect(facts.if_fails, facts.life, said.event, said.life) or 'nothing'
    said.effects[facts] = effect
  end
  return effect
end

-- Removes the index entries of jobs that waited for parents; queues: how many there were of each.
local function end_parent_waits(ids, queues)
  bulk('ZREM', P .. 'blocked_since:parents', ids)
  local left = #ids > 0 and (safe_read('HINCRBY', P .. 'blocked_on', 'parents', -#ids) or 0)
  if left and left <= 0 then
    call('HDEL', P .. 'blocked_on', 'parents')
  end
  for queue, n in pairs(queues) do
    if (safe_read('HINCRBY', P .. 'blocked_counts', queue, -n) or 0) <= 0 then
      call('HDEL', P .. 'blocked_counts', queue)
    end
  end
end

-- Cancels a job that waits for parents. parent: whose replay revives it, or nil.
cancel_waiting = function(id, failure, parent)
  local job = load_job(id)
  if not job then
    return
  end
  job.more = parse_live_state(call('HGET', P .. 'live_state', id), job.body)
  if job.more.blocked_on ~= 'parents' then
    return
  end
  end_wait('parents', job.queue, job.priority, id)
  job.token = job.more.token
  finish_without_result(job, {started = '', finished = '', error = failure}, 'cancelled', nil)
  if parent and not is_full then
    safe_write('HSET', P .. 'cancelled_by', id, parent)
  end
end

-- Makes jobs due that have no open parents left. states: their live states, but for run_at.
local function make_due(ids, run_ats, states)
  local due, changed, lines, counts, bodies_of, n = {}, {}, {}, {}, {}, 0
  for i, body in ipairs(fetch('job:', ids)) do
    if body and is_cancelled_by_workflow(body) then
      cancel_waiting(ids[i], WORKFLOW_CANCELLED, nil)
    else
      local id, run_at = ids[i], run_ats[i]
      local name = match(body or '', QUEUE_PATTERN) or 'default",5'  -- unreadable: whoever claims it will say so
      local lane = body and lane_of(body)
      local line = lines[lane and name .. lane or name]
      if not line then
        line = {n = 0, lane = lane, place = name}
        lines[lane and name .. lane or name] = line
      end
      local moment = tonumber(run_at)
      if moment <= now then
        moment, run_at = now, now_text
      end
      if lane then
        bodies_of[id] = body
      else
        wake_at(moment)
      end
      n = n + 1
      due[n], changed[2 * n - 1], changed[2 * n] = id, id, run_at .. states[i]
      line[line.n + 1], line[line.n + 2] = run_at, id
      line.n = line.n + 2
    end
  end
  if n == 0 then
    return
  end
  for _, line in pairs(lines) do
    local queue, priority = match(line.place, '^(.*)",(.)$')
    if line.lane then
      lanes().enter(queue, line.lane, priority, line, function(id) return lanes().place_of(id, bodies_of[id]) end)
    else
      bulk('ZADD', due_key(queue, priority), line)
    end
    call('SADD', P .. 'queues', queue)
    counts[queue] = (counts[queue] or 0) + line.n / 2
  end
  end_parent_waits(due, counts)
  bulk('HSET', P .. 'live_state', changed)
end

-- Takes parents that have ended off the count of their children. met: how many of each.
local WAITING_PATTERN = '^(%-?%d+)(,%d+,%d+,%d+,%d+,)(%d*),(%d+)(b?\n[^\n]*\n)parents(.*)$'  -- see parse_live_state
local function count_down(children, met)
  local due, run_ats, states, changed = {}, {}, {}, {}
  for i, text in ipairs(bulk_get('HMGET', P .. 'live_state', children)) do
    local run_at, charges, since, open, rest, tail = match(text or '', WAITING_PATTERN)
    local left = run_at and open - met[children[i]]
    if left and left > 0 then
      append(changed, children[i], run_at .. charges .. since .. ',' .. format('%d', left) .. rest .. 'parents' .. tail)
    elseif left then
      local n = #due + 1
      due[n], run_ats[n], states[n] = children[i], run_at, charges .. ',0' .. rest .. tail
    end
  end
  bulk('HSET', P .. 'live_state', changed)
  make_due(due, run_ats, states)
end

-- Returns of each parent that exists its state, life, task, end record, and whether it is a dead letter.
load_parents = function(ids)
  local bodies, dones, mores = fetch('job:', ids), fetch('ended:', ids), bulk_get('HMGET', P .. 'live_state', ids)
  local found = {}
  for i, id in ipairs(ids) do
    local body, done = bodies[i], dones[i]
    if body and done then
      local state = ended_state(done)
      found[id] = {
        state = state, life = tonumber(match(done, '\n%-?%d+,%d+,%d+,(%d+)')) or 0, task = match(body, TASK_PATTERN) or '',
        done = done, is_letter = state == 'dead' and call('ZSCORE', P .. 'dead', id) ~= false,
      }
    elseif body then
      local life = mores[i] and parse_live_state(mores[i]).replays or 0
      found[id] = {state = 'live', life = life, task = match(body, TASK_PATTERN) or ''}
    end
  end
  return found
end

-- Judges an edge anew by its parent, as load_parents gives it; nil: it was pruned, which counts as met. pending: a release of the
-- parent that has not come to this child yet, or nil; then the parent is taken as it was before that.
judge_anew = function(edge, parent, pending)
  if edge.is_met then
    return 'met'
  elseif pending and pending.event == 'replayed' then
    return judge_edge(edge.if_fails, edge.life, 'dead', pending.life - 1, true)
  elseif pending then
    return judge_edge(edge.if_fails, edge.life, pending.event == 'discarded' and 'dead' or 'live', pending.life, true)
  end
  return parent and judge_edge(edge.if_fails, edge.life, parent.state, parent.life, parent.is_letter) or 'met'
end

-- What the first release of each parent that is left says, as a function of parent and child.
local function pending_releases()
  local first = {}
  for _, text in ipairs(own_releases or safe_read('LRANGE', P .. 'releasing', 0, -1) or {}) do
    local parent, said = read_release(text)
    if said then
      first[parent] = first[parent] or {}
      append(first[parent], said)
    end
  end
  return function(parent, child)
    for _, said in ipairs(first[parent] or {}) do
      if said.after == '' or is_smaller_id(said.after, child) then
        return said
      end
    end
  end
end

local EDGES_PER_LOOK = 1000
-- Judges all edges of a child anew. Returns how many are open, and the first parent that cancels it, or nil.
judge_child = function(child, text, pending)
  local open, first = 0, 0
  repeat
    local edges, parents = list_edges(child, text, first, first + EDGES_PER_LOOK - 1), {}
    for i, edge in ipairs(edges) do
      parents[i] = edge.parent
    end
    local known = load_parents(parents)
    for _, edge in ipairs(edges) do
      local verdict = judge_anew(edge, known[edge.parent], pending and pending(edge.parent, child))
      if verdict == 'cancel' then
        return open, edge.parent
      end
      open = open + (verdict == 'nothing' and 1 or 0)
    end
    first = first + EDGES_PER_LOOK
  until #edges == 0
  return open, nil
end

-- A child that this parent's failure cancelled waits again, unless something else forbids it.
local function revive_child(id, parent, pending)
  local job = safe_read('HGET', P .. 'cancelled_by', id) == parent and find_job(id)
  local text, binds = edges_text(id)
  if not job or job.state ~= 'cancelled' or not text or is_cancelled_by_workflow(job.body) then
    return
  end
  if (job.flag == 'l' or job.flag == 'p') and find_key_holder(job.flag, job.task, job.head()[6]) then
    return
  end
  local open, other = judge_child(id, text, pending)
  if other then
    safe_write('HSET', P .. 'cancelled_by', id, other)
    return
  end
  local run_at, replays = match(job.done, '\n(%-?%d+),%d+,%d+,(%d+)')
  local token = tonumber(match(job.done, '^%[%-?%d+,"%a+",[^,]*,[^,]*,[^,]*,(%d+)')) or 0
  run_at = tonumber(run_at) or now
  safe_write('HDEL', P .. 'ended:' .. job.bucket, id)
  safe_write('HDEL', P .. 'cancelled_by', id)
  call('ZREM', P .. 'history', id)
  call('ZREM', P .. 'unsucceeded', id)
  add_to_counter(job.task, 'cancelled', -1)
  add_to_counter(job.task, 'live', 1)
  if job.flag ~= '-' then
    add_key(key_field(job.flag, job.task, job.head()[6]), id)
  end
  local waits = open > 0
  if job.lane then
    call('HSET', P .. 'lane_places', id, now_text)
  end
  job.more = {
    run_at = waits and run_at or math.max(run_at, now), token = token, failures = 0, crashes = 0, replays = (tonumber(replays) or 0) + 1,
    error = '', blocked_on = waits and 'parents' or '', blocked_since = waits and now or nil, open = open, binds = binds,
  }
  make_pending(job)
  reopen_workflow(workflow_of(job.body))
  revive_parent(job)
end

-- Returns the facts of the edges between parents and children, two lists; false where there is none.
find_facts = function(parents, children)
  local found, wide = {}, {}
  for i, text in ipairs(fetch('edge:', children)) do
    local child, parent = children[i], parents[i]
    found[i] = false
    if text and byte(text) == ONE then
      found[i] = find(text, parent, 2, true) == 2 and read_facts(sub(text, 18)) or false
    elseif text then
      local some = wide[child] or {parents = {}, places = {}}
      wide[child] = some
      some.parents[#some.parents + 1], some.places[#some.places + 1] = parent, i
    end
  end
  for child, some in pairs(wide) do
    for n, text in ipairs(bulk_get('HMGET', P .. 'edges:' .. child, some.parents)) do
      found[some.places[n]] = text and read_facts(text) or false
    end
  end
  return found
end

-- Does to each child what the release of its parent says. steps: as take_steps gives them.
follow = function(steps)
  local children, parents, sayings_of = steps.children, steps.parents, steps.sayings
  local met, counted, n, pending = {}, {}, 0, nil
  for i, facts in ipairs(find_facts(parents, children)) do
    local child, said = children[i], sayings_of[i]
    local effect = facts and effect_of(said, facts)
    if effect == 'met' then
      local count = met[child]
      if not count then
        n = n + 1
        counted[n] = child
      end
      met[child] = (count or 0) + 1
    elseif effect == 'cancel' then
      cancel_waiting(child, parent_failure(parents[i], said.task, said.event), parents[i])
    elseif effect == 'revive' then
      pending = pending or pending_releases()
      revive_child(child, parents[i], pending)
    end
  end
  if n > 0 then
    count_down(counted, met)
  end
end

-- Returns the children of a parent that were not followed yet, at most `limit`, and whether these are all. kid: of kid:<bucket>.
children_of = function(parent, after, kid, limit)
  if not kid or #kid >= 16 then
    return kid and after == '' and {sub(kid, 1, 16)} or {}, true
  end
  local from = after == '' and '-' or '(' .. after
  local found = safe_read('ZRANGEBYLEX', P .. 'kids:' .. parent, from, '+', 'LIMIT', 0, limit + 1) or {}
  local is_all = #found <= limit
  found[limit + 1] = nil
  return found, is_all
end

-- Takes the first releases of a list of texts: how many are done with, what is left of the next one (or nil), and the steps: lists
-- of children, of the parent of each, and of what the release says. One that revives is followed alone: it asks what is left of
-- the others.
take_steps = function(texts, limit)
  local parents, said, places, n, done = {}, {}, {}, 0, 0
  for i, text in ipairs(texts) do
    local parent, what = read_release(text)
    local revives = what and what.event == 'replayed'
    if revives and n > 0 then
      break
    end
    done = i
    if what then
      n = n + 1
      parents[n], said[n], places[n] = parent, what, i
    end
    if revives then
      break
    end
  end
  local steps, size = {children = {}, parents = {}, sayings = {}}, 0
  local function add_step(child, i)
    size = size + 1
    steps.children[size], steps.parents[size], steps.sayings[size] = child, parents[i], said[i]
  end
  for i, kid in ipairs(fetch('kid:', parents)) do
    if size >= limit then
      return places[i] - 1, nil, steps
    end
    if kid and #kid >= 16 and said[i].after == '' then
      add_step(sub(kid, 1, 16), i)
    else
      local children, is_all = children_of(parents[i], said[i].after, kid, limit - size)
      for _, child in ipairs(children) do
        add_step(child, i)
      end
      if not is_all then
        local rest = format_release(parents[i], said[i].event, said[i].life, said[i].task, children[#children])
        return places[i] - 1, rest, steps
      end
    end
  end
  return done, nil, steps
end

-- Follows at most MAX_ADVANCED edges; returns 1 if there may be more, else 0. The list is cut first: whatever a release meets, it
-- is not met again.
advance = function()
  if not has_links() then
    return 0
  end
  local left, key = MAX_ADVANCED, P .. 'releasing'
  while left > 0 do
    local texts = safe_read('LRANGE', key, 0, left - 1) or {}
    if #texts == 0 then
      break
    end
    local done, rest, steps = take_steps(texts, left)
    safe_write('LTRIM', key, done, -1)
    if rest then
      call('LSET', key, 0, rest)
    end
    follow(steps)
    left = left - math.max(#steps.children, done)
  end
  return exists('releasing') and 1 or 0
end

end
