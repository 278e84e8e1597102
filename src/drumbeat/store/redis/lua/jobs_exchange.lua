-- Records how claims ended, and claims the next jobs.
-- KEYS: 1 the prefix
-- ARGV: 1 instance, 2 limit (-1: no claim), 3 number of queues, then queue and share of each; number of wants, then these; number
-- of groups of successes, then of each: token, task (or '', see succeed), how many, and id, record of each (the JSON array of
-- _ending.lua: done_text; finished_at null: now); number of other outcomes, then of each: id, token, kind, started_at,
-- finished_at, delay, waits_for, error, 1 with a follow-up or 0
-- returns: now, next due moment, those outcomes that were not current (position and 1 if on record, else 0; flat), and of the
-- claimed jobs: ids, bodies, mores (empty if none has more)
-- include: _ending

local at = 1
local function arg()
  at = at + 1
  return ARGV[at - 1]
end

local instance = arg()
local limit = tonumber(arg())
local held = P .. 'held:' .. instance
local queues, shares, wants = {}, {}, {}
for i = 1, tonumber(arg()) do
  queues[i] = arg()
  shares[i] = tonumber(arg())
end
for i = 1, tonumber(arg()) do
  wants[i] = arg()
end

-- Successes, a group at once.

-- What must be known of a run that succeeded beyond its record; nothing for most.
local function tail_of(i, id, body, mores, progress, cancels)
  local more, requested = mores and mores[i], cancels and cancels[i] == 1
  if requested or more or (progress and progress[i]) then
    body = body or call('HGET', P .. 'job:' .. bucket(id), id)
    return done_tail(more_of(more, body), requested, progress and progress[i])
  end
end

-- Moves runs to history that have left `held` already. A task that is given says that all are of it, have no key and are no
-- fires of a schedule, so that nobody need look at their bodies; '' says nothing.
local function succeed(ids, records, task)
  local bodies = task == '' and fetch('job:', ids)
  local mores = exists('more') and bulk_get('HMGET', P .. 'more', ids)
  local progress = exists('progress') and bulk_get('HMGET', P .. 'progress', ids)
  local cancels = exists('cancels:' .. instance) and bulk_get('SMISMEMBER', P .. 'cancels:' .. instance, ids)
  if mores then bulk('HDEL', P .. 'more', ids) end
  if progress then bulk('HDEL', P .. 'progress', ids) end
  if cancels then bulk('SREM', P .. 'cancels:' .. instance, ids) end
  local tasks, ended, n, of_schedules = {}, {}, 0, {}
  by_bucket(ids, function(name, first, last)
    local list, m = {}, 0
    for i = first, last do
      local id, body, record = ids[i], bodies and bodies[i], records[i]
      if body or not bodies then
        if sub(record, 2, 2) == 'n' then
          record = '[' .. now_text .. sub(record, 6)
        end
        ended[n + 1], ended[n + 2] = match(record, '%-?%d+'), id
        n = n + 2
        local tail = (mores or progress or cancels) and tail_of(i, id, body, mores, progress, cancels)
        list[m + 1], list[m + 2] = id, tail and record .. tail or record
        m = m + 2
        local its_task = body and match(body, TASK) or task
        tasks[its_task] = (tasks[its_task] or 0) + 1
        if body and sub(body, 1, 1) ~= '-' then
          key_leave(key_field(sub(body, 1, 1), its_task, head_of(body)[6]), id)
        elseif body then
          of_schedules[id] = schedule_of(body)
        end
        if full then forget_job(id, name) end
      end
    end
    if m > 0 and not full then bulk('HSET', P .. 'done:' .. name, list) end
  end)
  if full then
    keep_pruned_before(now)
  else
    bulk('ZADD', P .. 'history', ended)
  end
  for id, name in pairs(of_schedules) do
    go_on(name, id)
  end
  for name, number in pairs(tasks) do
    count(name, 'live', -number)
    if not full then count(name, 'succeeded', number) end
  end
end

local RETURNING = {retry = true, snoozed = true, released = true, parked = true, crashed = true}

-- Whether this very outcome of (id, token) by this instance is on record.
local function on_record(id, token, kind)
  local function same(recorded)
    return recorded == kind or (recorded == 'cancelled' and RETURNING[kind])
  end
  local done = call('HGET', P .. 'done:' .. bucket(id), id)
  if done then
    local recorded, who, its = match(done, '^%[%-?%d+,"%a+","?(%a+)"?,%-?%w+,"?(%w+)"?,(%d+)')
    if who == instance and its == token and same(recorded) then
      return true
    end
  end
  for _, attempt in ipairs(call('LRANGE', P .. 'tries:' .. id, 0, -1)) do
    local its, who, recorded = match(attempt, '^%[(%d+),"(.-)","(%a+)"')
    if who == instance and its == token and same(recorded) then
      return true
    end
  end
  return false
end

local position, unsure = 0, {}
local function is_current(score, token)
  return score and (score == token or tonumber(score) == tonumber(token))
end

-- Which of these ids are held under this token, as a set, and how many others are, if that is known. Jobs that were claimed
-- together have one token: for many it is less work to see all that have it.
local FEW = 20
local function held_under(token, ids)
  local current = {}
  if #ids > FEW then
    local found = call('ZRANGEBYSCORE', held, token, token)
    for _, id in ipairs(found) do
      current[id] = true
    end
    return current, #found
  end
  for i, score in ipairs(bulk_get('ZMSCORE', held, ids)) do
    current[ids[i]] = is_current(score, token)
  end
  return current, nil
end

local function finish_group(token, task, ids, records)
  local current, all = held_under(token, ids)
  local kept, texts, n = {}, {}, 0
  for i, id in ipairs(ids) do
    if current[id] then
      current[id] = nil
      n = n + 1
      kept[n], texts[n] = id, records[i]
    else
      unsure[#unsure + 1] = {position = position + i, id = id, token = token, kind = 'succeeded'}
    end
  end
  position = position + #ids
  if n == 0 then
    return
  end
  if n == all then
    call('ZREMRANGEBYSCORE', held, token, token)
  else
    bulk('ZREM', held, kept)
  end
  succeed(kept, texts, task)
end

local groups = tonumber(arg())
if groups > 0 then
  look_if_full()
end
for _ = 1, groups do
  local token, task, n = ARGV[at], ARGV[at + 1], tonumber(ARGV[at + 2])
  local ids, records = {}, {}
  at = at + 3
  for i = 1, n do
    ids[i], records[i] = ARGV[at], ARGV[at + 1]
    at = at + 2
  end
  finish_group(token, task, ids, records)
end

-- Other outcomes, one by one.

local others = tonumber(arg())
if others > 0 and groups == 0 then
  look_if_full()
end
for _ = 1, others do
  position = position + 1
  local id, token, follow = ARGV[at], ARGV[at + 1], nil
  local run = {
    kind = ARGV[at + 2], started = ARGV[at + 3], finished = ARGV[at + 4], delay = tonumber(ARGV[at + 5]),
    waits_for = ARGV[at + 6], error = ARGV[at + 7],
  }
  at = at + 9
  if ARGV[at - 1] == '1' then
    follow = read_follow_up(at)
    at = at + FOLLOW
  end
  local job = is_current(call('ZSCORE', held, id), token) and held_job(instance, id, tonumber(token))
  if job then
    settle(job, run, follow)
  else
    unsure[#unsure + 1] = {position = position, id = id, token = token, kind = run.kind}
  end
end

local verdicts, refused = {}, 0
for _, each in ipairs(unsure) do
  local recorded = on_record(each.id, each.token, each.kind)
  verdicts[#verdicts + 1] = each.position
  verdicts[#verdicts + 1] = recorded and 1 or 0
  refused = refused + (recorded and 0 or 1)
end
if refused > 0 and exists('inst:' .. instance) then
  -- Alone, on a full server, it would be refused: a count is not worth that.
  redis.pcall('HINCRBY', P .. 'inst:' .. instance, 'refused', refused)
end

-- The claim.

local picked = {}

-- The next jobs of a line, taken out of it: always its first ones.
local function take(key, wanted)
  local found = call('ZRANGEBYSCORE', key, '-inf', now_text, 'LIMIT', 0, wanted)
  if #found > 0 then
    call('ZREMRANGEBYRANK', key, 0, #found - 1)
  end
  return found
end

-- Level by level; gives how many there were.
local function take_from(queue, wanted)
  local left = wanted
  for priority = 0, 9 do
    if left <= 0 then
      break
    end
    local found = take(due_key(queue, priority), left)
    for _, id in ipairs(found) do
      picked[#picked + 1] = id
    end
    left = left - #found
  end
  return wanted - left
end

-- What waits for something that this worker has. Its wait is over: more says so.
local function take_wanted(open)
  local present = bulk_get('HMGET', P .. 'waiting', wants)
  for i, why in ipairs(wants) do
    for _, queue in ipairs(present[i] and open or {}) do
      for priority = 0, 9 do
        local key = wait_key(why, queue, priority)
        local found = #picked < limit
          and call('ZRANGEBYSCORE', key, '-inf', now_text, 'LIMIT', 0, limit - #picked) or {}
        for _, id in ipairs(found) do
          picked[#picked + 1] = id
          end_wait(why, queue, priority, id)
          local text = call('HGET', P .. 'more', id)
          if text then
            local more = more_of(text)
            more.waits_for = ''
            call('HSET', P .. 'more', id, more_text(more))
          end
        end
      end
    end
  end
end

local function pick(open, share_of)
  if #wants > 0 and exists('waiting') then
    take_wanted(open)
  end
  local emptied = {}
  for i, queue in ipairs(open) do
    local share = math.min(share_of[i], limit - #picked)
    emptied[i] = share > 0 and take_from(queue, share) < share
  end
  for i, queue in ipairs(open) do
    if not emptied[i] and #picked < limit then
      take_from(queue, limit - #picked)
    end
  end
end

local function next_moment(open)
  local first = nil
  for _, queue in ipairs(open) do
    for priority = 0, 9 do
      local found = call('ZRANGEBYSCORE', due_key(queue, priority), '(' .. now_text, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
      local moment = tonumber(found[2])
      if moment and (not first or moment < first) then
        first = moment
      end
    end
  end
  return first
end

local next_due, ids, bodies, mores = false, {}, {}, {}
if limit >= 0 then
  local paused = exists('paused') and bulk_get('HMGET', P .. 'paused', queues) or {}
  local open, share_of = {}, {}
  for i, queue in ipairs(queues) do
    if not paused[i] then
      local n = #open + 1
      open[n], share_of[n] = queue, shares[i]
    end
  end
  if limit > 0 and call('ZSCORE', P .. 'alive', instance) then
    pick(open, share_of)
  end
  if #picked < limit then
    next_due = next_moment(open) or false
  end
end
if #picked > 0 then
  local known = exists('more') and bulk_get('HMGET', P .. 'more', picked)
  local found, list, n = fetch('job:', picked), {}, 0
  for i, id in ipairs(picked) do
    if found[i] then
      local token = now_text
      n = n + 1
      ids[n], bodies[n] = id, found[i]
      if known then
        mores[n] = known[i]
        if known[i] then
          token = us(math.max(now, more_of(known[i]).token + 1))
        end
      end
      list[2 * n - 1], list[2 * n] = token, id
    end
  end
  bulk('ZADD', held, list)
end
settle_up()
return {now, next_due, verdicts, ids, bodies, mores}
