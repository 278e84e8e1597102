-- Pauses, resumes or retires a schedule that has this revision.
-- KEYS: 1 the prefix
-- ARGV: 1 name, 2 revision, 3 state, 4 cursor (or empty: as it is), 5 next_at (or empty), 6 by, 7 reason; and if fires are skipped
-- by it: first, last, count, reason
-- returns: 1, or 0 if it has another revision
-- flags: allow-oom
-- include: _schedule

local name = ARGV[1]
local schedule = load_schedule(name, 'revision', 'cursor', 'current', 'every', 'origin', 'declared_at')
if not schedule and ARGV[3] == 'retired' and call('ZREM', P .. 'schedules', name) == 1 then
  -- Its record is missing or damaged: deletes what is left.
  call('DEL', schedule_key(name))
  for _, index in ipairs({'next_fires', 'intervals', 'declared'}) do
    call('ZREM', P .. index, name)
  end
  return 1
end
-- A damaged revision matches any.
if not schedule or (schedule.revision ~= ARGV[2] and tonumber(schedule.revision)) then
  return 0
end
schedule.state = ARGV[3]
local is_busy = schedule.every ~= '' and schedule.current ~= '' and is_job_live(schedule.current)
schedule.next_at = (schedule.state ~= 'active' or is_busy) and '' or ARGV[5]
save_next_fire(schedule)
call('HSET', schedule_key(name), 'state', schedule.state, 'revision', format('%d', (tonumber(schedule.revision) or 0) + 1),
  'cursor', ARGV[4] ~= '' and ARGV[4] or schedule.cursor, 'changed_at', now_text, 'by', ARGV[6], 'reason', ARGV[7])
if schedule.state == 'retired' then
  call('ZREM', P .. 'declared', name)
elseif schedule.origin == 'code' then
  call('ZADD', P .. 'declared', tonumber(schedule.declared_at) and schedule.declared_at or now_text, name)
end
if ARGV[8] then
  record_fire(name, 's', ARGV[8], ARGV[9], ARGV[10], 'skipped', ARGV[11], '')
end
return 1
