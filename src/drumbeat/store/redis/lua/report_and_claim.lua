-- Records outcomes and claims the next jobs.
-- KEYS: 1 the prefix
-- ARGV: 1 instance, 2 limit (-1: no claim), 3 how many of these may be of limited lines ('': all), 4 the reply channel for a parked claim (or ''), 5 number
-- of queues, then queue and share of each; number of unblocks, then these; number of follow-ups of successes, then of each: id of the
-- job that succeeded, follow-up (see _transitions.lua: read_follow_up); number of lanes, then queue and name of each; number of groups
-- of successes, then of each: token, task (or '', see succeed), how many, 1 if they are of lanes, and id, record of each (the JSON array
-- of _transitions.lua: format_end_record; finished_at null: now), and the number of its lane;
-- number of other outcomes, then of each: id, token, kind, started_at, finished_at, delay, blocked_on, error, follow-up
-- (see _transitions.lua: read_follow_up); of one that is suspended also: kind and name of its step ('' for none), signal (or ''),
-- until (or '': delay from now); of one that is released: 0, or 1 and the lane that it moves to
-- returns: now, next due time, the outcomes that were not current (position, and 1 if recorded before, else 0; flat), and of the
-- claimed jobs: ids, bodies, live states (empty if none has one); 1 if the claim is parked, else 0; 1 if releases are left, else 0; 1 if
-- there are jobs of limited lines that the claim had no slots for, else 0
-- include: _claim
-- include: _handoff
-- include: _dependencies

local at = 1
local function arg()
  at = at + 1
  return ARGV[at - 1]
end

local instance = arg()
local held = P .. 'held:' .. instance
local claim = {
  limit = tonumber(arg()), slots = arg(), reply_channel = arg(), queues = {}, shares = {}, unblocks = {}, lanes_left = MAX_LANES,
  places = {},
}
for i = 1, tonumber(arg()) do
  claim.queues[i] = arg()
  claim.shares[i] = tonumber(arg())
end
for i = 1, tonumber(arg()) do
  claim.unblocks[i] = arg()
end

claim.has_slots = claim.slots ~= ''
claim.slots = tonumber(claim.slots) or claim.limit

local success_follow_ups = nil
for _ = 1, tonumber(arg()) do
  success_follow_ups = success_follow_ups or {}
  local id = arg()
  success_follow_ups[id], at = read_follow_up(at)
end

local lane_places = {}
for i = 1, tonumber(arg()) do
  lane_places[i] = {arg(), arg()}
end

-- Successes, one group at a time.

-- What a successful run needs beyond its record; empty for most.
local function end_tail_of(i, id, body, mores, progress, cancels)
  local more, requested = mores and mores[i], cancels and cancels[i] == 1
  if requested or more or (progress and progress[i]) then
    -- As parse_live_state, faster.
    local run_at, failures, crashes, replays = match(
      more or '', '^(%-?%d+),%d+,(%d+),(%d+),(%d+),%d*,?%d*b?\n[^\n]*\n')
    if run_at and not (requested or (progress and progress[i])) then
      return '\n' .. run_at .. ',' .. failures .. ',' .. crashes .. ',' .. replays .. ',0\n'
    end
    body = body or safe_read('HGET', P .. 'job:' .. bucket(id), id) or ''
    return format_end_tail(parse_live_state(more, body), requested, progress and progress[i])
  end
end

-- The lanes of runs: by their numbers, or from their bodies.
local function leave_lanes(ids, bodies, mores, lane_numbers)
  if not lane_numbers and not (bodies and has_lanes()) then
    return
  end
  local ended, places = {}, {}
  for i = 1, #ids do
    local place = lane_numbers and lane_places[tonumber(lane_numbers[i])]
    local body = not place and bodies and bodies[i]
    local lane = body and lane_of(body)
    local _, queue = match(lane and body or '', HEADER_PATTERN)
    place = place or queue and {queue, lane}
    if place then
      places[#places + 1] = not ended[place] and place or nil
      ended[place] = (ended[place] or 0) + 1
    end
  end
  if #places > 0 then
    lanes().prepare(places)
  end
  for place, number in pairs(ended) do
    lanes().leave(place[1], place[2], number)
  end
  if mores then  -- as of all that were replayed
    bulk('HDEL', P .. 'lane_places', ids)
  end
end

-- Moves runs that have left `held` to history. A given task means that all are of that task, have no key and no schedule, so that
-- their bodies need not be read; '' means unknown.
local function succeed(ids, records, task, lane_numbers)
  local bodies = task == '' and fetch('job:', ids)
  local mores = exists('live_state') and bulk_get('HMGET', P .. 'live_state', ids)
  local progress = exists('progress') and bulk_get('HMGET', P .. 'progress', ids)
  local cancels = exists('cancels:' .. instance) and bulk_get('SMISMEMBER', P .. 'cancels:' .. instance, ids)
  if mores then bulk('HDEL', P .. 'live_state', ids) end
  if progress then bulk('HDEL', P .. 'progress', ids) end
  if cancels then bulk('SREM', P .. 'cancels:' .. instance, ids) end
  release_succeeded(ids, records, task, bodies, mores)
  leave_lanes(ids, bodies, mores, lane_numbers)
  local tasks, ended, n, of_schedules = {}, {}, 0, {}
  for_each_bucket(ids, function(name, first, last)
    local list, m = {}, 0
    for i = first, last do
      local id, body, record = ids[i], bodies and bodies[i], records[i]
      if body or not bodies then
        if sub(record, 2, 2) == 'n' then
          record = '[' .. now_text .. sub(record, 6)
        end
        ended[n + 1], ended[n + 2] = match(record, '%-?%d+'), id
        n = n + 2
        local tail = (mores or progress or cancels) and end_tail_of(i, id, body, mores, progress, cancels)
        list[m + 1], list[m + 2] = id, tail and record .. tail or record
        m = m + 2
        local its_task = body and match(body, TASK_PATTERN) or task
        tasks[its_task] = (tasks[its_task] or 0) + 1
        if body and find(body, '^[klp]') then
          remove_key(key_field(sub(body, 1, 1), its_task, decode_header(body)[6]), id)
        elseif body then
          of_schedules[id] = schedule_name_of(body)
        end
        if is_full then delete_job(id, name) end
      end
    end
    if m > 0 and not is_full then bulk('HSET', P .. 'ended:' .. name, list) end
  end)
  if is_full then
    advance_pruned_before(now)
  else
    bulk('ZADD', P .. 'history', ended)
  end
  for id, name in pairs(of_schedules) do
    start_next(name, id)
  end
  for name, number in pairs(tasks) do
    add_to_counter(name, 'live', -number)
    if not is_full then add_to_counter(name, 'succeeded', number) end
  end
end

local RETURNING = {retry = true, snoozed = true, released = true, suspended = true, blocked = true, crashed = true}

-- Returns whether this outcome of (id, token) by this instance was recorded before.
local function is_on_record(id, token, kind)
  local function same(recorded)
    return recorded == kind or (recorded == 'cancelled' and RETURNING[kind])
  end
  local done = safe_read('HGET', P .. 'ended:' .. bucket(id), id)
  if done then
    local recorded, who, its = match(done, '^%[%-?%d+,"%a+","?(%a+)"?,%-?%w+,"?(%w+)"?,(%d+)')
    if who == instance and its == token and same(recorded) then
      return true
    end
  end
  for _, attempt in ipairs(safe_read('LRANGE', P .. 'attempts:' .. id, 0, -1) or {}) do
    local its, who, recorded = match(attempt, '^%[(%d+),"(.-)","(%a+)"')
    if who == instance and its == token and same(recorded) then
      return true
    end
  end
  return false
end

local position, not_current = 0, {}
local function is_current(score, token)
  return score and (score == token or tonumber(score) == tonumber(token))
end

-- Returns which of these ids are held with this token, as a set, and how many others are, if known. Jobs claimed together share a
-- token: for many ids it is cheaper to read all that have it.
local FEW = 20
local function find_held(token, ids)
  local current = {}
  if #ids > FEW then
    local found = safe_read('ZRANGEBYSCORE', held, token, token) or {}
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

local function finish_group(token, task, ids, records, lane_numbers)
  local current, all = find_held(token, ids)
  local kept, texts, numbers, n = {}, {}, lane_numbers and {}, 0
  for i, id in ipairs(ids) do
    if current[id] then
      current[id] = nil
      n = n + 1
      kept[n], texts[n] = id, records[i]
      if numbers then numbers[n] = lane_numbers[i] end
    else
      not_current[#not_current + 1] = {position = position + i, id = id, token = token, kind = 'succeeded'}
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
  succeed(kept, texts, task, numbers)
  if success_follow_ups then
    for _, id in ipairs(kept) do
      insert_follow_up(success_follow_ups[id])
    end
  end
end

local groups = tonumber(arg())
if groups > 0 then
  check_if_full()
end
for _ = 1, groups do
  local token, task, n, numbers = ARGV[at], ARGV[at + 1], tonumber(ARGV[at + 2]), ARGV[at + 3] == '1' and {} or nil
  local ids, records = {}, {}
  at = at + 4
  for i = 1, n do
    ids[i], records[i] = ARGV[at], ARGV[at + 1]
    at = at + 2
    if numbers then
      numbers[i] = ARGV[at]
      at = at + 1
    end
  end
  finish_group(token, task, ids, records, numbers)
end

-- Other outcomes, one by one.

local others = tonumber(arg())
if others > 0 and groups == 0 then
  check_if_full()
end
for _ = 1, others do
  position = position + 1
  local id, token, follow = ARGV[at], ARGV[at + 1], nil
  local run = {
    kind = ARGV[at + 2], started = ARGV[at + 3], finished = ARGV[at + 4], delay = tonumber(ARGV[at + 5]),
    blocked_on = ARGV[at + 6], error = ARGV[at + 7],
  }
  follow, at = read_follow_up(at + 8)
  if run.kind == 'suspended' then
    run.step, run.step_name, run.signal, run.till = unpack(ARGV, at, at + 3)
    at = at + 4
  elseif run.kind == 'released' then
    run.lane = ARGV[at] == '1' and ARGV[at + 1] or nil
    at = at + (run.lane and 2 or 1)
  end
  local job = is_current(safe_read('ZSCORE', held, id), token) and load_held_job(instance, id, tonumber(token))
  if job then
    apply_outcome(job, run, follow)
  else
    not_current[#not_current + 1] = {position = position, id = id, token = token, kind = run.kind}
  end
end

local verdicts, refused = {}, 0
for _, each in ipairs(not_current) do
  local recorded = is_on_record(each.id, each.token, each.kind)
  append(verdicts, each.position, recorded and 1 or 0)
  refused = refused + (recorded and 0 or 1)
end
if refused > 0 and exists('inst:' .. instance) then
  -- As the only write it would be refused on a full server; a counter is not worth that.
  redis.pcall('HINCRBY', P .. 'inst:' .. instance, 'refused', refused)
end

-- Children of what has ended, so that this claim finds them.

if has_links() and groups + others == 0 then
  check_if_full()
end
local is_releasing = advance()

-- The claim.

local next_due, is_parked, ids, bodies, mores = false, 0, {}, {}, {}
if claim.limit >= 0 then
  local open, shares = unpaused_queues(claim)
  local lives = claim.limit > 0 and call('ZSCORE', P .. 'alive', instance)
  local picked = lives and pick_jobs(claim, open, shares) or {}
  if #picked < claim.limit then
    next_due = next_due_at(open, claim) or false
  elseif lives and claim.has_slots and claim.slots <= 0 and has_lanes() then
    find_limited(open, claim)
  end
  if #picked > 0 then
    ids, bodies, mores = assign_jobs(instance, picked, claim.places)
  end
  if lives and #picked == 0 and claim.reply_channel ~= '' then
    is_parked = park_claim(instance, claim)
  else
    unpark_claim(instance)
  end
end
serve_parked_claims()
flush_effects()
return {now, next_due, verdicts, ids, bodies, mores, is_parked, is_releasing, claim.has_limited and 1 or 0}
