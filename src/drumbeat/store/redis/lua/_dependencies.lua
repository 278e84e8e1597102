-- Follows the releases of parents that have ended: the only thing that touches their children. See core/dependencies.py.
-- include: _find_job

-- A script has at most 200 locals: what only this file needs is in the block below.
local MAX_ADVANCED = 1000
local parent_failure, cancel_waiting, load_parents, judge_anew, judge_child, find_edges, children_of, take_steps, follow, advance
do

local WORKFLOW_CANCELLED = '{"type":"WorkflowCancelled","message":"its workflow was cancelled"}'
local EVENTS = {died = 'died', cancelled = 'was cancelled', discarded = 'was discarded'}

parent_failure = function(parent, task, event)
  local hex = string.gsub(parent, '.', function(byte) return format('%02x', string.byte(byte)) end)
  local id = table.concat({sub(hex, 1, 8), sub(hex, 9, 12), sub(hex, 13, 16), sub(hex, 17, 20), sub(hex, 21)}, '-')
  return '{"type":"ParentFailed","message":"its parent ' .. id .. ' (task ' .. task .. ') ' .. (EVENTS[event] or event) .. '"}'
end

local function parse_release(text)
  local event, life, task, after = match(text, '^(%l+),(%d+),([^\n]*)\n(.*)$', 17)
  return event and {parent = sub(text, 1, 16), event = event, life = tonumber(life), task = task, after = after}
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
  end_wait('parents', job.queue, job.priority, id)
  job.token = job.more.token
  finish_without_result(job, {started = '', finished = '', error = failure}, 'cancelled', nil)
  if parent and not is_full then
    safe_write('HSET', P .. 'cancelled_by', id, parent)
  end
end

-- Makes jobs due that have no open parents left: id -> live state.
local function make_due(waiting)
  local ids, mores, queues, lines = {}, {}, {}, {}
  for id in pairs(waiting) do
    ids[#ids + 1] = id
  end
  local due, n = {}, 0
  for i, body in ipairs(fetch('job:', ids)) do
    local id, more = ids[i], waiting[ids[i]]
    if body and is_cancelled_by_workflow(body) then
      cancel_waiting(id, WORKFLOW_CANCELLED, nil)
    else
      local _, queue, priority = match(body or '', HEADER_PATTERN)
      queue, priority = queue or 'default', priority or '5'  -- unreadable: whoever claims it will say so
      more.run_at, more.blocked_on, more.blocked_since = math.max(more.run_at, now), '', nil
      n = n + 1
      due[n], mores[2 * n - 1], mores[2 * n] = id, id, format_live_state(more)
      queues[queue] = (queues[queue] or 0) + 1
      local key = due_key(queue, priority)
      local line = lines[key] or {}
      lines[key] = line
      line[#line + 1] = us(more.run_at)
      line[#line + 1] = id
      wake_at(more.run_at)
    end
  end
  end_parent_waits(due, queues)
  bulk('HSET', P .. 'live_state', mores)
  for key, line in pairs(lines) do
    bulk('ZADD', key, line)
  end
  for queue in pairs(queues) do
    call('SADD', P .. 'queues', queue)
  end
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

-- The first release of each parent that is left, as a function of parent and child.
local function pending_releases()
  local first = {}
  for _, text in ipairs(own_releases or safe_read('LRANGE', P .. 'releasing', 0, -1) or {}) do
    local release = parse_release(text)
    if release then
      first[release.parent] = first[release.parent] or {}
      append(first[release.parent], release)
    end
  end
  return function(parent, child)
    for _, release in ipairs(first[parent] or {}) do
      if release.after == '' or is_smaller_id(release.after, child) then
        return release
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
  job.more = {
    run_at = waits and run_at or math.max(run_at, now), token = token, failures = 0, crashes = 0, replays = (tonumber(replays) or 0) + 1,
    error = '', blocked_on = waits and 'parents' or '', blocked_since = waits and now or nil, open = open, binds = binds,
  }
  make_pending(job)
  reopen_workflow(workflow_of(job.body))
  revive_parent(job)
end

-- Returns the edges of pairs of child and parent; false where there is none.
find_edges = function(steps, children)
  local edges, wide = {}, {}
  for i, text in ipairs(fetch('edge:', children)) do
    local child, parent = children[i], steps[i].release.parent
    edges[i] = false
    if text and sub(text, 1, 1) == '1' then
      edges[i] = sub(text, 2, 17) == parent and parse_edge(sub(text, 18), parent) or false
    elseif text then
      local some = wide[child] or {parents = {}, places = {}}
      wide[child] = some
      some.parents[#some.parents + 1], some.places[#some.places + 1] = parent, i
    end
  end
  for child, some in pairs(wide) do
    for n, facts in ipairs(bulk_get('HMGET', P .. 'edges:' .. child, some.parents)) do
      edges[some.places[n]] = parse_edge(facts, some.parents[n]) or false
    end
  end
  return edges
end

-- Does to each child what the release says; steps: {child, release}.
follow = function(steps)
  local children, looked, due, changed, pending = {}, {}, {}, {}, nil
  for i, step in ipairs(steps) do
    children[i] = step.child
  end
  local edges, mores = find_edges(steps, children), bulk_get('HMGET', P .. 'live_state', children)
  for i, child in ipairs(children) do
    local release, edge = steps[i].release, edges[i]
    -- An edge that is younger than what happened was judged by it.
    local effect = edge and not edge.is_met and release.life >= edge.life
      and edge_effect(edge.if_fails, edge.life, release.event, release.life) or 'nothing'
    if effect == 'revive' then
      pending = pending or pending_releases()
      revive_child(child, release.parent, pending)
    elseif effect ~= 'nothing' then
      local more = looked[child]
      if more == nil then
        more = mores[i] and parse_live_state(mores[i]) or false
        more = more and more.open and more.blocked_on == 'parents' and more
        looked[child] = more
      end
      if more and effect == 'cancel' then
        looked[child], changed[child] = false, nil
        release.failure = release.failure or parent_failure(release.parent, release.task, release.event)
        cancel_waiting(child, release.failure, release.parent)
      elseif more then
        more.open = math.max(more.open - 1, 0)
        changed[child] = more
        if more.open == 0 then
          looked[child], changed[child], due[child] = false, nil, more
        end
      end
    end
  end
  local list = {}
  for child, more in pairs(changed) do
    append(list, child, format_live_state(more))
  end
  bulk('HSET', P .. 'live_state', list)
  make_due(due)
end

-- Returns the children of a release that were not followed yet, at most `limit`, and whether these are all.
children_of = function(release, kid, limit)
  if not kid or #kid >= 16 then
    return kid and release.after == '' and {sub(kid, 1, 16)} or {}, true
  end
  local from = release.after == '' and '-' or '(' .. release.after
  local found = safe_read('ZRANGEBYLEX', P .. 'kids:' .. release.parent, from, '+', 'LIMIT', 0, limit + 1) or {}
  local is_all = #found <= limit
  found[limit + 1] = nil
  return found, is_all
end

-- Takes the first releases of a list of texts: how many are done with, what is left of the next one (or nil), and the steps.
-- One that revives is followed alone: it asks what is left of the others.
take_steps = function(texts, limit)
  local releases, parents, steps, done = {}, {}, {}, 0
  for i, text in ipairs(texts) do
    local release = parse_release(text)
    local revives = release and release.event == 'replayed'
    if revives and #releases > 0 then
      break
    end
    done = i
    if release then
      release.place = i
      releases[#releases + 1], parents[#parents + 1] = release, release.parent
    end
    if revives then
      break
    end
  end
  local kids = fetch('kid:', parents)
  for i, release in ipairs(releases) do
    if #steps >= limit then
      return release.place - 1, nil, steps
    end
    local children, is_all = children_of(release, kids[i], limit - #steps)
    for _, child in ipairs(children) do
      steps[#steps + 1] = {child = child, release = release}
    end
    if not is_all then
      local rest = format_release(release.parent, release.event, release.life, release.task, children[#children])
      return release.place - 1, rest, steps
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
    left = left - math.max(#steps, done)
  end
  return exists('releasing') and 1 or 0
end

end
