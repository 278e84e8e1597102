-- Common to all job scripts: commands for many ids at once, buckets, counters, live states.
--
-- A body (hash job:<bucket>) is: a flag ('-' no key, 'k' key, 'l' unique while live, 'p' unique while pending), a JSON array
-- [created_at, due_at, task, queue, priority, key, signature, retries, timeout, crash_limit, on_dead, group],
-- with the schedule ('' for none), the trace, expires_at (a time, or a text: '+' and how long after due_at), the parent, the workflow
-- and the lane behind it where there is one; a newline, args.
-- Names of tasks and queues have no quotes and no backslashes (names.py), so that patterns can find them.
-- include: _prelude

local HEADER_PATTERN = '^.%[%-?%d+,%-?%d+,"([^"]*)","([^"]*)",(%d)'
local TASK_PATTERN = '^.%[%-?%d+,%-?%d+,"([^"]*)"'
local DUE_AT_PATTERN = '^.%[%-?%d+,(%-?%d+)'

-- A full server refuses a script whose first write adds data. History and attempts are not kept there.
local is_full = false
local function check_if_full()
  local answer = redis.pcall('SETRANGE', P .. 'probe', 0, '')
  -- Any other error is raised by the writes that follow.
  is_full = type(answer) == 'table' and answer.err ~= nil and find(answer.err, 'OOM', 1, true) ~= nil
end

-- Requesting a cancellation adds data but must work on a full server: a first write that adds nothing lets the others pass.
local function allow_adding_when_full()
  call('DEL', P)
end

-- Runs a command with a long list of values in chunks; pairs stay together.
local function bulk(command, key, list)
  local n = #list
  for first = 1, n, CHUNK do
    -- Not `safe_write`: it would copy a long list once more.
    local last = math.min(first + CHUNK - 1, n)
    local answer = try(command, key, unpack(list, first, last))
    if type(answer) == 'table' and answer.err then
      safe_write(command, key, unpack(list, first, last))
    end
  end
end

-- Returns one answer for each value of the list.
local function bulk_get(command, key, list)
  local n = #list
  if n <= CHUNK then
    local found = n > 0 and try(command, key, unpack(list)) or {}
    return found.err and {} or found
  end
  local found = {}
  for first = 1, n, CHUNK do
    local part = safe_read(command, key, unpack(list, first, math.min(first + CHUNK - 1, n))) or {}
    for i = 1, #part do
      found[first + i - 1] = part[i]
    end
  end
  return found
end

-- The bucket of an id: its first 9 hexadecimal digits, which is 4 s of enqueue time.
local buckets = {}
local function bucket(id)
  local head = sub(id, 1, 5)
  local name = buckets[head]
  if not name then
    -- Shorter values are not ids and belong to no bucket.
    name = #head < 5 and 'none' or sub(format('%02x%02x%02x%02x%02x', string.byte(head, 1, 5)), 1, 9)
    buckets[head] = name
  end
  return name
end

-- Records the order of the ids of a bucket, which its hash does not have. Ascending ids that came together are a run: its first
-- and last id and its size are in the list ids:<bucket>, all of its ids in the hash runs:<bucket>. Other ids are listed singly.
local MIN_RUN = 8
local function record_ids(name, ids, first, last, ascend)
  if ascend and last - first >= MIN_RUN then
    local ends = ids[first] .. ids[last]
    safe_write('HSET', P .. 'runs:' .. name, ends, table.concat(ids, '', first, last))
    safe_write('RPUSH', P .. 'ids:' .. name, ends .. (last - first + 1))
  else
    safe_write('RPUSH', P .. 'ids:' .. name, unpack(ids, first, last))
  end
end

-- Calls visit(bucket, first, last) for each group of consecutive ids of one bucket. Ids are nearly always in order.
local function for_each_bucket(ids, visit)
  local n, first = #ids, 1
  while first <= n do
    local name, last = bucket(ids[first]), first
    local stop = math.min(n, first + CHUNK - 1)
    while last < stop and bucket(ids[last + 1]) == name do
      last = last + 1
    end
    visit(name, first, last)
    first = last + 1
  end
end

-- Reads the values of ids in the hashes <kind><bucket>; false where there is none.
local function fetch(kind, ids)
  local found = {}
  for_each_bucket(ids, function(name, first, last)
    local part = try('HMGET', P .. kind .. name, unpack(ids, first, last))
    if part.err then
      for i = first, last do
        found[i] = false
      end
      return
    end
    for i = 1, #part do
      found[first + i - 1] = part[i]
    end
  end)
  return found
end

-- Called after `gone` ids of a bucket were deleted. Deletes an empty bucket; else lists the rest anew each time that half of it
-- has gone, so that one dead letter does not keep the ids of the 100,000 jobs that came with it.
local MAX_RELISTED = 4096
local function compact_bucket(name, gone)
  local left = safe_read('HLEN', P .. 'job:' .. name) or 0
  local _, halvings = math.frexp(left)
  local _, before = math.frexp(left + gone)
  if left > MAX_RELISTED or (left > 0 and halvings == before) then
    return
  end
  call('DEL', P .. 'ids:' .. name, P .. 'runs:' .. name)
  if left == 0 then
    call('ZREM', P .. 'buckets', name)
  else
    bulk('RPUSH', P .. 'ids:' .. name, call('HKEYS', P .. 'job:' .. name))
  end
end

-- The decoded array of a body.
local function decode_header(body)
  return decode_table(sub(body, 2, (find(body, '\n', 1, true) or 1) - 1))
end

-- Whether any line was ever declared, or any job put into a lane: all that queues without lines cost.
local has_any_lanes = nil
local function has_lanes()
  if has_any_lanes == nil then
    has_any_lanes = exists('lane_queues')
  end
  return has_any_lanes
end

-- Called with the first job of a lane, also if it waits for something else.
local function note_lanes(queue)
  if not has_lanes() then
    safe_write('SADD', P .. 'lane_queues', queue)
    has_any_lanes = true
  end
end

local function lane_of_header(header)
  local lane = header[18]
  return type(lane) == 'string' and lane ~= '' and lane or nil
end

-- The lane that a body names, or nil.
local function lane_of(body)
  return has_lanes() and lane_of_header(decode_header(body)) or nil
end

-- The index of pending jobs that are not blocked. lane: nil for plain jobs.
local function due_key(queue, priority, lane)
  if lane then
    return P .. 'lane_due:' .. queue .. '\0' .. lane .. ':' .. priority
  end
  return P .. 'due:' .. queue .. ':' .. priority
end

-- Counters of tasks, collected here and written by flush_effects.
local counts = {}
local function add_to_counter(task, what, by)
  if task == '' then  -- unreadable record
    return
  end
  local field = task .. '\0' .. what
  counts[field] = (counts[field] or 0) + by
end

-- The smallest run_at of jobs that became pending; published by flush_effects.
local soonest = nil
local function wake_at(moment)
  if not soonest or moment < soonest then
    soonest = moment
  end
end

-- The last step of every script that writes.
local lane_effects = nil  -- set once a script has to do with lanes (_lanes.lua)
local function flush_effects()
  if lane_effects then
    lane_effects()
  end
  for field, by in pairs(counts) do
    -- A damaged counter starts again. It can only drop below zero if a job's task was damaged.
    if by ~= 0 and (safe_read('HINCRBY', P .. 'count', field, by) or 0) <= 0 then
      call('HDEL', P .. 'count', field)
    end
  end
  if soonest then
    call('PUBLISH', P .. 'wake', us(soonest))
  end
end

-- The live state of a job is what its body does not say, a text of three lines. A job that was never claimed or changed has none:
-- its run_at is the body's due_at, the rest is empty.
--     run_at,token,failures,crashes,replays,blocked_since (or empty); of a job that has parents also: ,how many are open, b if it binds
--     results of them
--     error as JSON, or empty
--     blocked_on, or empty
--     only of a job that has slept or waited for a signal: what it is suspended by, or empty
local function parse_live_state(text, body)
  local run_at, token, failures, crashes, replays, since, open, binds, at
  if text then
    run_at, token, failures, crashes, replays, since, open, binds, at = match(
      text, '^(%-?%d+),(%d+),(%d+),(%d+),(%d+),(%d*),?(%d*)(b?)\n()')
  end
  local stop = at and find(text, '\n', at, true)
  if not stop then  -- absent or unreadable
    return {
      run_at = tonumber(body and match(body, DUE_AT_PATTERN)) or now, token = 0, failures = 0, crashes = 0, replays = 0, error = '',
      blocked_on = '',
    }
  end
  local stop_on = find(text, '\n', stop + 1, true)
  return {
    run_at = tonumber(run_at), token = tonumber(token), failures = tonumber(failures), crashes = tonumber(crashes),
    replays = tonumber(replays), blocked_since = tonumber(since), error = sub(text, at, stop - 1),
    blocked_on = sub(text, stop + 1, (stop_on or 0) - 1), suspended = stop_on and sub(text, stop_on + 1),
    open = tonumber(open), binds = binds == 'b',
  }
end

local function format_live_state(more)
  local parents = more.open and ',' .. format('%d', more.open) .. (more.binds and 'b' or '') or ''
  return format('%.0f,%.0f,%d,%d,%d,%s%s\n%s\n%s', more.run_at, more.token, more.failures, more.crashes, more.replays,
    more.blocked_since and us(more.blocked_since) or '', parents, more.error, more.blocked_on)
    .. (more.suspended and '\n' .. more.suspended or '')
end

-- All that follows is put into a function of its own (scripts.py). A function that uses a local of the script makes Lua walk over all
-- used locals above it, so the script's start cost 74 µs instead of 43; and a function has at most 200 locals.
-- inner
