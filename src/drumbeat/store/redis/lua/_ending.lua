-- How runs end: what becomes of a job that an instance holds. Include it, and for each held job:
--
--     local job = held_job(instance, id, token)      nil: there is no such job (it is taken out of `held`)
--         job.cancel_requested, job.more.crashes, job.crash_limit(), job.on_dead() (a name, or nil) tell what there is to decide
--     local run = {kind = 'crashed', started = '1794...', finished = '', delay = 0, waits_for = '', error = '{"type":...}'}
--         texts of µs, '' for nothing; error is JSON. UNSTARTED is the run of a claim that never started.
--     then exactly one of
--         go_back(job, run, crashes)                  pending again, with so many crashes; run.kind says when and how
--         die(job, run, crashes, follow)              a dead letter; follow: a job made by read_follow_up, or nil
--         cancel(job, run, recorded)                  history; recorded: the outcome on record ('cancelled', 'crashed' or nil)
--         settle(job, run, follow)                    whichever of these the outcome `run.kind` of a worker calls for
-- and settle_up() once in the end: it writes the counters and wakes workers. All of it may run on a full server.
-- include: _base
-- include: _keys
-- include: _adding
-- include: _scheduling

local UNSTARTED = {kind = 'released', started = '', finished = '', delay = 0, waits_for = '', error = ''}

local function or_null(text)
  return text == '' and 'null' or text
end

-- The job of an id, live or ended, with what is common to both; nil if there is none.
local function job_of(id)
  local name = bucket(id)
  local body = ask('HGET', P .. 'job:' .. name, id)
  if not body then
    return nil
  end
  local job = {id = id, bucket = name, body = body, flag = match(body, '^[klp]') or '-'}
  job.task, job.queue, job.priority = match(body, PLACE)
  if not job.queue then
    -- Nobody knows its line: it cannot be pending again, and dies instead (see go_back).
    job.task, job.queue, job.priority, job.is_malformed = match(body, TASK) or '', 'default', '5', true
  end
  local head = nil
  job.head = function()
    head = head or head_of(body)
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

local function held_job(instance, id, token)
  local job = job_of(id)
  if not job then
    call('ZREM', P .. 'held:' .. instance, id)
    return nil
  end
  job.instance, job.token = instance, token
  job.more = more_of(call('HGET', P .. 'more', id), job.body)
  job.cancel_requested = ask('SISMEMBER', P .. 'cancels:' .. instance, id) == 1
  return job
end

-- Frees before anything is added.
local function let_go(job)
  put('ZREM', P .. 'held:' .. job.instance, job.id)
  if job.cancel_requested then
    call('SREM', P .. 'cancels:' .. job.instance, job.id)
  end
  job.progress = call('HGET', P .. 'progress', job.id)
  if job.progress then
    call('HDEL', P .. 'progress', job.id)
  end
end

-- The name of the schedule whose fire a job is, or nil.
local schedules = nil
local function schedule_of(body)
  if schedules == nil then
    schedules = exists('schedules')
  end
  local name = schedules and head_of(body)[13]
  return type(name) == 'string' and name ~= '' and name or nil
end

-- The end of a job of this schedule; see below.
local go_on = nil

-- A job is live no more: its key is free, and its schedule goes on.
local function leave_live(job)
  call('HDEL', P .. 'more', job.id)
  local schedule = job.flag == '-' and schedule_of(job.body)
  if schedule then
    go_on(schedule, job.id)
  end
  if job.flag ~= '-' then
    key_leave(key_field(job.flag, job.task, job.head()[6]), job.id)
  end
  count(job.task, 'live', -1)
end

-- What is in the hash done:<bucket>: a JSON array [finished_at, state, outcome, started_at, instance, token, result,
-- result_error, error]; where more is known, a line run_at,failures,crashes,life,cancel_requested; and a line of progress.
local function done_tail(more, cancel_requested, progress)
  return format('\n%.0f,%d,%d,%d,%d\n%s', more.run_at, more.failures, more.crashes, more.life, cancel_requested and 1 or 0,
    progress or '')
end

local function done_text(job, state, outcome, run, finished)
  local who = job.instance and '"' .. job.instance .. '"' or 'null'
  return '[' .. finished .. ',"' .. state .. '",' .. (outcome and '"' .. outcome .. '"' or 'null') .. ',' .. or_null(run.started)
    .. ',' .. who .. ',' .. us(job.token) .. ',null,null,' .. or_null(run.error) .. ']'
    .. done_tail(job.more, job.cancel_requested, job.progress)
end

-- History that is not kept: as if it had been pruned at once.
local function forget_job(id, name)
  put('HDEL', P .. 'job:' .. name, id)
  put('HDEL', P .. 'done:' .. name, id)
  call('DEL', P .. 'tries:' .. id)
  tidy(name, 1)
end

local function keep_pruned_before(moment)
  local before = tonumber(call('HGET', P .. 'meta', 'pruned_before') or '0') or 0
  if moment > before then
    call('HSET', P .. 'meta', 'pruned_before', us(moment))
  end
end

-- A job that was pending or let go becomes history as cancelled.
local function end_cancelled(job, run, recorded)
  leave_live(job)
  if full then
    forget_job(job.id, job.bucket)
    keep_pruned_before(now)
    return
  end
  local finished = run.finished ~= '' and run.finished or now_text
  put('HSET', P .. 'done:' .. job.bucket, job.id, done_text(job, 'cancelled', recorded, run, finished))
  call('ZADD', P .. 'history', finished, job.id)
  call('ZADD', P .. 'unsucceeded', 0, job.id)
  count(job.task, 'cancelled', 1)
end

-- A job that was waiting or let go becomes a dead letter; its more says how often it failed.
local function end_dead(job, run, recorded, follow)
  leave_live(job)
  local finished = run.finished ~= '' and run.finished or now_text
  put('HSET', P .. 'done:' .. job.bucket, job.id, done_text(job, 'dead', recorded, run, finished))
  call('ZADD', P .. 'dead', 0, job.id)
  count(job.task, 'dead', 1)
  if follow and not call('HGET', P .. 'job:' .. bucket(follow.id), follow.id) then
    write_jobs({follow.id}, {follow.kind}, {follow.args}, {follow.key})
  end
end

-- A follow-up among ARGV: a kind, then id, args, key ('' for none). FOLLOW values from `at` on.
local FOLLOW = KIND + 3
local function read_follow_up(at)
  local id, args, key = ARGV[at + KIND], ARGV[at + KIND + 1], ARGV[at + KIND + 2]
  return {kind = read_kind(at), id = id, args = args, key = key ~= '' and key or nil}
end

local function wait_key(waits_for, queue, priority)
  return P .. 'wait:' .. waits_for .. '\0' .. queue .. ':' .. priority
end

-- Pending jobs that wait for something other than time, and those that do no longer.
local function begin_wait(job)
  local why = job.more.waits_for
  put('ZADD', wait_key(why, job.queue, job.priority), us(job.more.run_at), job.id)
  put('ZADD', P .. 'waits:' .. why, us(job.more.waits_since), job.id)
  call('HINCRBY', P .. 'waiting', why, 1)
  call('HINCRBY', P .. 'parked', job.queue, 1)
end

local function end_wait(why, queue, priority, id)
  put('ZREM', wait_key(why, queue, priority), id)
  put('ZREM', P .. 'waits:' .. why, id)
  if (ask('HINCRBY', P .. 'waiting', why, -1) or 0) <= 0 then
    call('HDEL', P .. 'waiting', why)
  end
  if (ask('HINCRBY', P .. 'parked', queue, -1) or 0) <= 0 then
    call('HDEL', P .. 'parked', queue)
  end
end

-- A job of unique="pending" whose key was taken while it ran comes back as one that is not unique.
local function give_up_taken_key(job)
  local key = job.head()[6]
  if type(key) ~= 'string' or not holder('p', job.task, key, job.id) then
    return
  end
  key_leave(key_field('p', job.task, key), job.id)
  key_enter(key_field('k', job.task, key), job.id)
  call('HSET', P .. 'job:' .. job.bucket, job.id, 'k' .. sub(job.body, 2))
end

-- Into its line again.
local function make_pending(job)
  local more = job.more
  call('HSET', P .. 'more', job.id, more_text(more))
  if more.waits_for ~= '' then
    begin_wait(job)
  else
    put('ZADD', due_key(job.queue, job.priority), us(more.run_at), job.id)
  end
  call('SADD', P .. 'queues', job.queue)
  due_from(more.run_at)
end

-- The oldest job that waits for a schedule waits no more; gives its id, or ''.
local function successor(name)
  local why = 'schedule:' .. name
  local id, job = nil, nil
  repeat
    id = call('ZRANGE', P .. 'waits:' .. why, 0, 0)[1]
    job = id and job_of(id)
    if id and not job then
      call('ZREM', P .. 'waits:' .. why, id)
    end
  until job or not id
  if not job then
    return ''
  end
  job.more = more_of(call('HGET', P .. 'more', id), job.body)
  end_wait(why, job.queue, job.priority, id)
  job.more.waits_for, job.more.waits_since = '', nil
  make_pending(job)
  return id
end

-- The end of the current job of a schedule lets the next in line go on; with AFTER and nobody in line, it sets the next moment.
go_on = function(name, id)
  local plan = plan_of(name, 'current', 'next_at', 'every', 'end')
  if not plan or plan.current ~= id then
    return
  end
  plan.current = successor(name)
  if plan.every ~= '' then
    local moment, stop = now + (tonumber(plan.every) or 0), tonumber(plan['end'])
    local is_over = plan.current ~= '' or plan.state ~= 'active' or (stop and moment >= stop)
    plan.next_at = is_over and '' or us(moment)
  end
  keep_moment(plan)
end

local function keep_attempt(job, run)
  if full then
    return
  end
  local finished = run.finished ~= '' and run.finished or now_text
  put('RPUSH', P .. 'tries:' .. job.id, '[' .. us(job.token) .. ',"' .. job.instance .. '","' .. run.kind .. '",'
    .. or_null(run.started) .. ',' .. finished .. ',' .. or_null(run.error) .. ']')
end

local UNREADABLE = '{"type":"Undecodable","message":"stored body cannot be read: it was changed while the job ran"}'
local die = nil

local function go_back(job, run, crashes)
  if job.is_malformed then
    die(job, {kind = 'dead', started = run.started, finished = run.finished, error = UNREADABLE}, crashes, nil)
    return
  end
  local kind, more = run.kind, job.more
  local started = run.started ~= '' or (kind ~= 'released' and kind ~= 'parked')
  let_go(job)
  more.token, more.crashes = job.token, crashes
  if kind == 'retry' then
    more.failures = more.failures + 1
  end
  more.waits_for = kind == 'parked' and run.waits_for or ''
  if started then
    more.waits_since = nil
  end
  if more.waits_for ~= '' then
    more.waits_since = more.waits_since or now
  end
  if kind == 'retry' or kind == 'snoozed' then
    more.run_at = now + run.delay
  elseif kind ~= 'parked' then
    more.run_at = math.min(more.run_at, now)
  end
  if run.error ~= '' then
    more.error = run.error
  end
  if job.flag == 'p' then
    give_up_taken_key(job)
  end
  make_pending(job)
  if started then
    keep_attempt(job, run)
  end
end

die = function(job, run, crashes, follow)
  let_go(job)
  job.more.crashes = crashes
  if run.kind == 'dead' then
    job.more.failures = job.more.failures + 1
  end
  end_dead(job, run, run.kind, follow)
end

local function cancel(job, run, recorded)
  let_go(job)
  end_cancelled(job, run, recorded)
end

local function settle(job, run, follow)
  local kind = run.kind
  local crashes = job.more.crashes + (kind == 'crashed' and 1 or 0)
  if kind == 'dead' or (kind == 'crashed' and crashes >= job.crash_limit()) then
    die(job, run, crashes, follow)
  elseif kind == 'cancelled' or job.cancel_requested then
    cancel(job, run, 'cancelled')
  else
    go_back(job, run, crashes)
  end
end
