-- Creates a schedule, or changes the definition of one that has this revision, and makes it active.
-- KEYS: 1 the prefix
-- ARGV: 1 name, 2 revision (or empty: a new one, or one that is retired), 3 cursor (or empty: as it is), 4 next_at (or empty), 5 by,
-- then definition, task, queue, priority, head, rest, overlap, every, end, origin, app (see _schedule.lua)
-- returns: 1, or 0 if it exists already or has another revision
-- include: _schedule

local name, revision = ARGV[1], ARGV[2]
local schedule = load_schedule(name, 'revision', 'cursor', 'current', 'created_at', 'declared_at')
if revision == '' then
  if schedule and schedule.state ~= 'retired' then
    return 0
  end
elseif not schedule or schedule.revision ~= revision then
  return 0
end

local is_new = not schedule or revision == ''
schedule = schedule or {name = name, revision = '0', cursor = '', current = '', created_at = '', declared_at = ''}
schedule.state, schedule.every = 'active', ARGV[13]
local is_busy = schedule.every ~= '' and schedule.current ~= '' and is_job_live(schedule.current)
schedule.next_at = is_busy and '' or ARGV[4]
local declared = ARGV[15] == 'code' and now_text or (is_new and '' or schedule.declared_at)
safe_write('HSET', schedule_key(name), 'definition', ARGV[6], 'task', ARGV[7], 'queue', ARGV[8], 'priority', ARGV[9], 'head', ARGV[10],
  'rest', ARGV[11], 'overlap', ARGV[12], 'every', ARGV[13], 'end', ARGV[14], 'origin', ARGV[15], 'app', ARGV[16],
  'state', 'active', 'revision', format('%d', (tonumber(schedule.revision) or 0) + 1),
  'cursor', ARGV[3] ~= '' and ARGV[3] or schedule.cursor, 'created_at', is_new and now_text or schedule.created_at,
  'changed_at', now_text, 'declared_at', declared, 'by', ARGV[5], 'reason', '')
call('ZADD', P .. 'schedules', 0, name)
if ARGV[15] == 'code' then
  call('ZADD', P .. 'declared', now_text, name)
else
  call('ZREM', P .. 'declared', name)
end
-- It may have been an interval until now.
call('ZREM', P .. 'intervals', name)
save_next_fire(schedule)
return 1
