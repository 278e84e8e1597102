-- What an outcome does to a job that an instance holds; the rules of core/transitions.py. Include it, and for each held job:
--
--     local job = load_held_job(instance, id, token)      nil: no such job (it is removed from `held`)
--         job.cancel_requested, job.more.crashes, job.crash_limit(), job.on_dead() (a name, or nil) are what to decide by
--     local run = {kind = 'crashed', started = '1794...', finished = '', delay = 0, blocked_on = '', error = '{"type":...}'}
--         texts of µs, '' for nothing; error is JSON.
--     then exactly one of
--         return_to_pending(job, run, crashes)                  pending again, with `crashes` crashes; run.kind says when
--         make_dead_letter(job, run, crashes, follow)              a dead letter; follow: a job made by read_follow_up, or nil
--         cancel_run(job, run, recorded)                  to history; recorded: the recorded outcome ('cancelled', 'crashed' or nil)
--         apply_outcome(job, run, follow)                    one of these, by the outcome `run.kind` of a worker
-- and flush_effects() once at the end: it writes the counters and wakes workers. All of it works on a full server.
-- include: _base
-- include: _uniqueness
-- include: _insert_jobs
-- include: _schedule
-- include: _signals
-- include: _releases

local function or_null(text)
  return text == '' and 'null' or text
end

-- Loads a job, live or ended, with what is common to both; nil if there is none.
local function load_job(id)
  local name = bucket(id)
  local body = safe_read('HGET', P .. 'job:' .. name, id)
  if not body then
    return nil
  end
  local job = {id = id, bucket = name, body = body, flag = match(body, '^[klp]') or '-'}
  job.task, job.queue, job.priority = match(body, HEADER_PATTERN)
  if not job.queue then
    -- Its queue is unreadable: it cannot become pending again and is made a dead letter (see return_to_pending).
    job.task, job.queue, job.priority, job.is_malformed = match(body, TASK_PATTERN) or '', 'default', '5', true
  else
    job.lane = lane_of(body)
  end
  local head = nil
  job.head = function()
    head = head or decode_header(body)
    return head
  end
  job.crash_limit = function()
    return tonumber(job.head()[10]) or 3
  end
  job.on_dead = function()
    local task = job.head()[11]
    return type(task) == 'string' and task or nil
  end
  return job
end

local function load_held_job(instance, id, token)
  local job = load_job(id)
  if not job then
    call('ZREM', P .. 'held:' .. instance, id)
    return nil
  end
  job.instance, job.token = instance, token
  job.more = parse_live_state(call('HGET', P .. 'live_state', id), job.body)
  job.cancel_requested = safe_read('SISMEMBER', P .. 'cancels:' .. instance, id) == 1
  return job
end

-- Releases a claim. Deletes before anything is added.
local function release_hold(job)
  safe_write('ZREM', P .. 'held:' .. job.instance, job.id)
  if job.lane then
    lanes().leave(job.queue, job.lane, 1)
  end
  if job.cancel_requested then
    call('SREM', P .. 'cancels:' .. job.instance, job.id)
  end
  job.progress = call('HGET', P .. 'progress', job.id)
  if job.progress then
    call('HDEL', P .. 'progress', job.id)
  end
end

-- Returns the name of the schedule that created a job, or nil.
local schedules = nil
local function schedule_name_of(body)
  if schedules == nil then
    schedules = exists('schedules')
  end
  local name = schedules and decode_header(body)[13]
  return type(name) == 'string' and name ~= '' and name or nil
end

-- Defined below.
local start_next = nil

-- Removes a job from the live ones: frees its key and starts the next job of its schedule.
local function remove_from_live(job)
  call('HDEL', P .. 'live_state', job.id)
  if job.lane and job.more.replays > 0 then
    call('HDEL', P .. 'lane_places', job.id)
  end
  local schedule = job.flag == '-' and schedule_name_of(job.body)
  if schedule then
    start_next(schedule, job.id)
  end
  if job.flag ~= '-' then
    remove_key(key_field(job.flag, job.task, job.head()[6]), job.id)
  end
  add_to_counter(job.task, 'live', -1)
end

-- The end record in the hash ended:<bucket>: a JSON array [finished_at, state, outcome, started_at, instance, token, result,
-- result_error, error]; if there was a live state, a line run_at,failures,crashes,replays,cancel_requested; and a line of progress.
local function format_end_tail(more, cancel_requested, progress)
  return format('\n%.0f,%d,%d,%d,%d\n%s', more.run_at, more.failures, more.crashes, more.replays, cancel_requested and 1 or 0,
    progress or '')
end

local function format_end_record(job, state, outcome, run, finished)
  local who = job.instance and '"' .. job.instance .. '"' or 'null'
  return '[' .. finished .. ',"' .. state .. '",' .. (outcome and '"' .. outcome .. '"' or 'null') .. ',' .. or_null(run.started)
    .. ',' .. who .. ',' .. us(job.token) .. ',null,null,' .. or_null(run.error) .. ']'
    .. format_end_tail(job.more, job.cancel_requested, job.progress)
end

-- Deletes a job whose history is not kept, as if it had been pruned at once.
local function delete_job(id, name)
  forget_links({id}, fetch('job:', {id}))
  safe_write('HDEL', P .. 'job:' .. name, id)
  safe_write('HDEL', P .. 'ended:' .. name, id)
  call('DEL', P .. 'attempts:' .. id, P .. 'steps:' .. id, P .. 'signals:' .. id)
  compact_bucket(name, 1)
end

local function advance_pruned_before(moment)
  local before = tonumber(call('HGET', P .. 'meta', 'pruned_before') or '0') or 0
  if moment > before then
    call('HSET', P .. 'meta', 'pruned_before', us(moment))
  end
end

-- Moves a pending or released job to history, as cancelled or expired.
local function finish_without_result(job, run, state, recorded)
  local finished = run.finished ~= '' and run.finished or now_text
  remove_from_live(job)
  local record = format_end_record(job, state, recorded, run, finished)
  release_children(job, 'cancelled', record)
  if is_full then
    delete_job(job.id, job.bucket)
    advance_pruned_before(now)
    return
  end
  safe_write('HSET', P .. 'ended:' .. job.bucket, job.id, record)
  call('ZADD', P .. 'history', finished, job.id)
  call('ZADD', P .. 'unsucceeded', 0, job.id)
  add_to_counter(job.task, state, 1)
end

-- Inserts a job made by read_follow_up; nil is none.
local function insert_follow_up(follow)
  if follow and not call('HGET', P .. 'job:' .. bucket(follow.id), follow.id) then
    insert_jobs({follow.id}, {follow.template}, {follow.args}, {follow.key})
  end
end

-- Makes a dead letter of a blocked or released job; its live state says how often it failed.
local function finish_dead(job, run, recorded, follow)
  remove_from_live(job)
  local finished = run.finished ~= '' and run.finished or now_text
  local record = format_end_record(job, 'dead', recorded, run, finished)
  safe_write('HSET', P .. 'ended:' .. job.bucket, job.id, record)
  release_children(job, 'died', record)
  call('ZADD', P .. 'dead', 0, job.id)
  add_to_counter(job.task, 'dead', 1)
  insert_follow_up(follow)
end

-- Reads a follow-up from ARGV: 0 for none; or 1, a template, then id, args, key ('' for none). Returns it, or nil, and the position
-- of the value after it.
local function read_follow_up(at)
  if ARGV[at] ~= '1' then
    return nil, at + 1
  end
  local last = at + TEMPLATE_SIZE + 3
  local id, args, key = unpack(ARGV, last - 2, last)
  return {template = read_template(at + 1), id = id, args = args, key = key ~= '' and key or nil}, last + 1
end

local function wait_key(blocked_on, queue, priority)
  return P .. 'blocked:' .. blocked_on .. '\0' .. queue .. ':' .. priority
end

-- Index entries of jobs that are blocked on something other than time. No worker claims by parents.
local function begin_wait(job)
  local reason = job.more.blocked_on
  if reason ~= 'parents' then
    safe_write('ZADD', wait_key(reason, job.queue, job.priority), us(job.more.run_at), job.id)
  end
  safe_write('ZADD', P .. 'blocked_since:' .. reason, us(job.more.blocked_since), job.id)
  call('HINCRBY', P .. 'blocked_on', reason, 1)
  call('HINCRBY', P .. 'blocked_counts', job.queue, 1)
end

local function end_wait(reason, queue, priority, id)
  safe_write('ZREM', wait_key(reason, queue, priority), id)
  safe_write('ZREM', P .. 'blocked_since:' .. reason, id)
  if (safe_read('HINCRBY', P .. 'blocked_on', reason, -1) or 0) <= 0 then
    call('HDEL', P .. 'blocked_on', reason)
  end
  if (safe_read('HINCRBY', P .. 'blocked_counts', queue, -1) or 0) <= 0 then
    call('HDEL', P .. 'blocked_counts', queue)
  end
end

-- A job with unique="pending" whose key was taken while it ran becomes pending as one that is not unique.
local function drop_taken_key(job)
  local key = job.head()[6]
  if type(key) ~= 'string' or not find_key_holder('p', job.task, key, job.id) then
    return
  end
  remove_key(key_field('p', job.task, key), job.id)
  add_key(key_field('k', job.task, key), job.id)
  call('HSET', P .. 'job:' .. job.bucket, job.id, 'k' .. sub(job.body, 2))
end

-- Adds a job to the index of those that are due, or will be.
local function add_to_due(job)
  if job.lane then
    lanes().enter(job.queue, job.lane, job.priority, {us(job.more.run_at), job.id}, function(id)
      return lanes().place_of(id, job.body)
    end)
  else
    safe_write('ZADD', due_key(job.queue, job.priority), us(job.more.run_at), job.id)
    wake_at(job.more.run_at)
  end
end

-- Adds a job to its pending index.
local function make_pending(job)
  local more = job.more
  call('HSET', P .. 'live_state', job.id, format_live_state(more))
  if more.blocked_on ~= '' then
    begin_wait(job)
    wake_at(more.run_at)
  else
    add_to_due(job)
  end
  call('SADD', P .. 'queues', job.queue)
end

-- The fields of a JSON array of scalars, as texts: numbers are not rounded.
local function split_fields(text)
  local fields, at, start, is_text = {}, 2, 2, false
  while at <= #text do
    local char = sub(text, at, at)
    if char == '\\' then
      at = at + 1
    elseif char == '"' then
      is_text = not is_text
    elseif not is_text and (char == ',' or char == ']') then
      fields[#fields + 1], start = sub(text, start, at - 1), at + 1
    end
    at = at + 1
  end
  return fields
end

-- Puts a job that was claimed into another lane ('': none), and its group with it.
local function change_lane(job, lane)
  local stop = find(job.body, '\n', 1, true)
  local fields = split_fields(sub(job.body, 2, stop - 1))
  for i = #fields + 1, 18 do
    fields[i] = i == 13 and '""' or 'null'
  end
  fields[12], fields[18] = cjson.encode(match(lane, '^[^ ]* (.*)$') or ''), cjson.encode(lane)
  job.body = job.flag .. '[' .. table.concat(fields, ',') .. ']' .. sub(job.body, stop)
  safe_write('HSET', P .. 'job:' .. job.bucket, job.id, job.body)
  job.lane = lane ~= '' and lane or nil
  if job.lane then
    note_lanes(job.queue)
  end
end

-- Makes a pending job due now.
local function make_due_now(job)
  local more = job.more
  more.run_at = now
  if more.blocked_on ~= '' then
    call('ZADD', wait_key(more.blocked_on, job.queue, job.priority), now_text, job.id)
    wake_at(now)
  else
    add_to_due(job)
  end
  call('HSET', P .. 'live_state', job.id, format_live_state(more))
end

-- Unblocks the oldest job that is blocked on a schedule; returns its id, or ''.
local function unblock_successor(name)
  local reason = 'schedule:' .. name
  local id, job = nil, nil
  repeat
    id = call('ZRANGE', P .. 'blocked_since:' .. reason, 0, 0)[1]
    job = id and load_job(id)
    if id and not job then
      call('ZREM', P .. 'blocked_since:' .. reason, id)
    end
  until job or not id
  if not job then
    return ''
  end
  job.more = parse_live_state(call('HGET', P .. 'live_state', id), job.body)
  end_wait(reason, job.queue, job.priority, id)
  job.more.blocked_on, job.more.blocked_since = '', nil
  make_pending(job)
  return id
end

-- When the current job of a schedule ends: starts the next blocked job, or sets the next fire of an interval after completion.
start_next = function(name, id)
  local schedule = load_schedule(name, 'current', 'next_at', 'every', 'end')
  if not schedule or schedule.current ~= id then
    return
  end
  schedule.current = unblock_successor(name)
  if schedule.every ~= '' then
    local moment, stop = now + (tonumber(schedule.every) or 0), tonumber(schedule['end'])
    local is_over = schedule.current ~= '' or schedule.state ~= 'active' or (stop and moment >= stop)
    schedule.next_at = is_over and '' or us(moment)
  end
  save_next_fire(schedule)
end

local function record_attempt(job, run)
  if is_full then
    return
  end
  local finished = run.finished ~= '' and run.finished or now_text
  safe_write('RPUSH', P .. 'attempts:' .. job.id, '[' .. us(job.token) .. ',"' .. job.instance .. '","' .. run.kind .. '",'
    .. or_null(run.started) .. ',' .. finished .. ',' .. or_null(run.error) .. ']')
end

-- When a wait without a time-out ends; core/suspension.py: FOREVER_US.
local FOREVER = 221845392000000000

-- Puts a sleep or a wait on record (steps.py), and says when the job is due again. The first record of its kind and name counts.
local function suspend(job, run)
  local till = run.till ~= '' and tonumber(run.till) or now + run.delay
  job.more.run_at = till
  if run.step == '' then
    return
  end
  local is_wait = run.signal ~= ''
  if is_wait and oldest_unread(job.id, run.signal) then  -- it has come first
    job.more.run_at = now
  end
  job.more.suspended = is_wait and 'signal:' .. run.signal or 'sleep'
  call('ZREM', P .. 'expiring', job.id)
  local record = '[' .. us(job.token) .. ',' .. (run.finished ~= '' and run.finished or now_text) .. ','
    .. (till == FOREVER and 'null' or us(till)) .. ',null,' .. (is_wait and cjson.encode(run.signal) or 'null') .. ',null]'
  safe_write('HSETNX', P .. 'steps:' .. job.id, run.step .. '\0' .. run.step_name, record)
end

local UNREADABLE_ERROR = '{"type":"Undecodable","message":"stored body cannot be read: it was changed while the job ran"}'
local make_dead_letter = nil

local function return_to_pending(job, run, crashes)
  if job.is_malformed then
    make_dead_letter(job, {kind = 'dead', started = run.started, finished = run.finished, error = UNREADABLE_ERROR}, crashes, nil)
    return
  end
  local kind, more = run.kind, job.more
  local started = run.started ~= '' or (kind ~= 'released' and kind ~= 'blocked')
  release_hold(job)
  if run.lane then
    change_lane(job, run.lane)
  end
  more.token, more.crashes = job.token, crashes
  if kind == 'retry' then
    more.failures = more.failures + 1
  end
  more.blocked_on = kind == 'blocked' and run.blocked_on or ''
  if started then
    more.blocked_since = nil
  end
  if more.blocked_on ~= '' then
    more.blocked_since = more.blocked_since or now
  end
  more.suspended = more.suspended and ''
  if kind == 'suspended' then
    more.crashes = 0
    suspend(job, run)
  elseif kind == 'retry' or kind == 'snoozed' then
    more.run_at = now + run.delay
  elseif kind ~= 'blocked' then
    more.run_at = math.min(more.run_at, now)
  end
  if run.error ~= '' then
    more.error = run.error
  end
  if job.flag == 'p' then
    drop_taken_key(job)
  end
  make_pending(job)
  if started then
    record_attempt(job, run)
  end
end

make_dead_letter = function(job, run, crashes, follow)
  release_hold(job)
  job.more.crashes = crashes
  if run.kind == 'dead' then
    job.more.failures = job.more.failures + 1
  end
  finish_dead(job, run, run.kind, follow)
end

local function cancel_run(job, run, recorded)
  release_hold(job)
  finish_without_result(job, run, 'cancelled', recorded)
end

local function apply_outcome(job, run, follow)
  local kind = run.kind
  local crashes = job.more.crashes + (kind == 'crashed' and 1 or 0)
  if kind == 'dead' or (kind == 'crashed' and crashes >= job.crash_limit()) then
    make_dead_letter(job, run, crashes, follow)
  elseif kind == 'expired' then
    release_hold(job)
    finish_without_result(job, run, 'expired', 'expired')
  elseif kind == 'cancelled' or job.cancel_requested then
    cancel_run(job, run, 'cancelled')
  else
    return_to_pending(job, run, crashes)
  end
end
