-- What the end of a job leaves for its children, in the same step. `advance` (_dependencies.lua) follows it.
--
-- A release is in the list `releasing`: the parent, then event,life,task, a newline and the last child that was followed, or ''.
-- include: _edges

-- Whether any live job has children, or any release is left. All that jobs without dependencies cost: one command for a script.
local links = nil
local function has_links()
  if links == nil then
    links = call('EXISTS', P .. 'parents', P .. 'releasing') > 0
  end
  return links
end

local function format_release(parent, event, life, task, after)
  return parent .. event .. ',' .. format('%d', life) .. ',' .. task .. '\n' .. (after or '')
end

-- Releases of this script that it follows itself; nil: all go to the list.
local own_releases = nil
local function leave_release(parent, event, life, task)
  local text = format_release(parent, event, life, task)
  if own_releases then
    own_releases[#own_releases + 1] = text
  else
    safe_write('RPUSH', P .. 'releasing', text)
  end
end

-- What is kept of how a parent ended, for children that bind it. record: the array of format_end_record (_transitions.lua).
local function format_kept(task, record)
  if sub(record, 2, 2) == 'n' then
    record = '[' .. now_text .. sub(record, 6)
  end
  return task .. '\n' .. match(record, '^[^\n]*')
end

local function keep_results(parents, texts)
  for_each_bucket(parents, function(name, first, last)
    local list = {}
    for i = first, last do
      list[#list + 1] = parents[i]
      list[#list + 1] = texts[i]
    end
    bulk('HSET', P .. 'kept:' .. name, list)
  end)
end

local function is_bound(kid)
  return kid and #kid % 16 == 1
end

-- Called when a live job has ended otherwise than by success.
local function release_children(job, event, record)
  if not has_links() or safe_read('SREM', P .. 'parents', job.id) ~= 1 then
    return
  end
  if is_bound(safe_read('HGET', P .. 'kid:' .. job.bucket, job.id)) then
    keep_results({job.id}, {format_kept(job.task, record)})
  end
  leave_release(job.id, event, job.more.replays, job.task)
end

-- The same for many that have succeeded. task: '' if bodies are given.
local function release_succeeded(ids, records, task, bodies, mores)
  if not has_links() then
    return
  end
  local found, parents, places, n = bulk_get('SMISMEMBER', P .. 'parents', ids), {}, {}, 0
  for i, id in ipairs(ids) do
    if found[i] == 1 and (not bodies or bodies[i]) then
      n = n + 1
      parents[n], places[n] = id, i
    end
  end
  if n == 0 then
    return
  end
  bulk('SREM', P .. 'parents', parents)
  local kids, releases, kept, texts = fetch('kid:', parents), {}, {}, {}
  for number, id in ipairs(parents) do
    local i = places[number]
    local its_task = bodies and match(bodies[i], TASK_PATTERN) or task
    local life = mores and mores[i] and match(mores[i], '^%-?%d+,%d+,%d+,%d+,(%d+)') or '0'
    releases[number] = id .. 'succeeded,' .. life .. ',' .. its_task .. '\n'  -- as format_release, faster
    if is_bound(kids[number]) then
      kept[#kept + 1], texts[#texts + 1] = id, format_kept(its_task, records[i])
    end
  end
  keep_results(kept, texts)
  bulk('RPUSH', P .. 'releasing', releases)
end

-- A job that lives again is a parent again.
local function revive_parent(job)
  if safe_read('HEXISTS', P .. 'kid:' .. job.bucket, job.id) == 1 then
    links = true
    safe_write('SADD', P .. 'parents', job.id)
    leave_release(job.id, 'replayed', job.more.replays, job.task)
  end
end

local forget_links = nil
do

-- Removes a child from its parents; deletes what is kept of those that have no other.
local function unlink(child, parents)
  local childless = {}
  for i, kid in ipairs(fetch('kid:', parents)) do
    local parent = parents[i]
    if kid and #kid < 16 then
      safe_write('ZREM', P .. 'kids:' .. parent, child)
      kid = call('EXISTS', P .. 'kids:' .. parent) == 0 and child or ''
    end
    if kid and sub(kid, 1, 16) == child then
      childless[#childless + 1] = parent
    end
  end
  for_each_bucket(childless, function(name, first, last)
    safe_write('HDEL', P .. 'kid:' .. name, unpack(childless, first, last))
    safe_write('HDEL', P .. 'kept:' .. name, unpack(childless, first, last))
  end)
  bulk('SREM', P .. 'parents', childless)
end

local function leave_workflow(id, workflow)
  local members = P .. 'workflow_jobs:' .. workflow
  safe_write('ZREM', members, id)
  if call('EXISTS', members) == 1 then
    return
  end
  local name = safe_read('HGET', P .. 'workflow:' .. workflow, 'name')
  if name then
    safe_write('ZREM', P .. 'workflows_of:' .. name, workflow)
    safe_write('ZREM', P .. 'open_workflows:' .. name, workflow)
  end
  call('DEL', P .. 'workflow:' .. workflow)
  safe_write('SREM', P .. 'cancelled_workflows', workflow)
  safe_write('ZREM', P .. 'workflows', workflow)
end

-- Deletes the edges of jobs to their parents, with all that is there for them only, and their places in workflows. Their children
-- keep their own edges. bodies: as fetched.
forget_links = function(ids, bodies)
  for i, text in ipairs(fetch('edge:', ids)) do
    local id = ids[i]
    if text then
      unlink(id, sub(text, 1, 1) == '1' and {sub(text, 2, 17)} or safe_read('LRANGE', P .. 'places:' .. id, 0, -1) or {})
      safe_write('HDEL', P .. 'edge:' .. bucket(id), id)
      call('DEL', P .. 'edges:' .. id, P .. 'places:' .. id)
      safe_write('HDEL', P .. 'cancelled_by', id)
    end
    local workflow = bodies[i] and workflow_of(bodies[i])
    if workflow then
      leave_workflow(id, workflow)
    end
  end
end

end
