-- Declares an instance dead if its heartbeat count is still what the caller saw, and frees its jobs.
-- KEYS: 1 the prefix
-- ARGV: 1 instance, 2 its heartbeat count (or empty: any), 3 reason, 4 the same as an error (JSON), 5 number of follow-ups, then of
-- each the id of the job that dies and the follow-up (see _transitions.lua: read_follow_up); then, if only some jobs were running, 'started' and
-- id, token of each of these
-- returns: 0 (not declared); 1, crash_suspect, released, dead, cancelled, 1 if releases are left; or -1 and the ids of jobs that are about to die and whose
-- follow-ups are missing: nothing was done
-- include: _end_instance
-- include: _dependencies
local instance, count_seen, reason = ARGV[1], ARGV[2], ARGV[3]
if not call('ZSCORE', P .. 'alive', instance) then return {0} end
if count_seen ~= '' and (safe_read('HGET', P .. 'inst:' .. instance, 'beat') or '0') ~= count_seen then return {0} end

local at, follow_ups = 6, {}
for _ = 1, tonumber(ARGV[5]) do
  local id = ARGV[at]
  follow_ups[id], at = read_follow_up(at + 1)
end
local marks = nil
if ARGV[at] == 'started' then
  marks = {}
  for i = at + 1, #ARGV, 2 do
    marks[ARGV[i]] = tonumber(ARGV[i + 1])
  end
end

local jobs, started = load_held_jobs(instance), 0
for _, job in ipairs(jobs) do
  job.is_blamed = not marks or marks[job.id] == job.token
  started = started + (job.is_blamed and 1 or 0)
end
local missing = {-1}
for _, job in ipairs(jobs) do
  -- A crash suspect runs alone: if it was the only running job, the crash is its own and counts.
  local crashes = job.more.crashes
  job.crashes = (crashes > 0 and started == 1) and crashes + 1 or math.max(crashes, 1)
  job.dies = job.is_blamed and not job.cancel_requested and job.crashes >= job.crash_limit()
  if job.dies and job.on_dead() and not follow_ups[job.id] then
    missing[#missing + 1] = job.id
  end
end
if #missing > 1 then return missing end

check_if_full()
end_instance(instance, 'dead', reason)
local crash_suspect, released, dead, cancelled = 0, 0, 0, 0
for _, job in ipairs(jobs) do
  -- The start is not known; the token is the time of the claim, or a little later.
  local crash = {kind = 'crashed', started = us(job.token), finished = '', delay = 0, blocked_on = '', error = ARGV[4]}
  -- It may have run, with its outcome not reported: recorded as a run, not charged.
  local release = {kind = 'released', started = us(job.token), finished = '', delay = 0, blocked_on = '', error = ''}
  if job.cancel_requested then
    cancel_run(job, job.is_blamed and crash or release, job.is_blamed and 'crashed' or 'cancelled')
    cancelled = cancelled + 1
  elseif not job.is_blamed then
    return_to_pending(job, release, job.more.crashes)
    released = released + 1
  elseif job.dies then
    make_dead_letter(job, crash, job.crashes, follow_ups[job.id])
    dead = dead + 1
  else
    return_to_pending(job, crash, job.crashes)
    crash_suspect = crash_suspect + 1
  end
end
call('DEL', P .. 'held:' .. instance, P .. 'cancels:' .. instance)
local is_releasing = advance()
flush_effects()
local parts = {}
for _, part in ipairs({{crash_suspect, 'to run again alone'}, {released, 'released'}, {dead, 'dead'}, {cancelled, 'cancelled'}}) do
  if part[1] > 0 then
    parts[#parts + 1] = part[1] .. ' ' .. part[2]
  end
end
if #parts > 0 then
  safe_write('HSET', P .. 'inst:' .. instance, 'reason', reason .. '; its jobs: ' .. table.concat(parts, ', '))
end
return {1, crash_suspect, released, dead, cancelled, is_releasing}
