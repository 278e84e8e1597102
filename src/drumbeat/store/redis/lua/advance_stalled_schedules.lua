-- Repairs stalled schedules: unblocks jobs whose schedule has no live current job, and sets missing next fires of intervals.
-- KEYS: 1 the prefix
-- ARGV: none
-- returns: how many
-- flags: allow-oom
-- include: _transitions

local set_going = 0
for _, reason in ipairs(call('HKEYS', P .. 'blocked_on')) do
  local name = sub(reason, 1, 9) == 'schedule:' and sub(reason, 10)
  local schedule = name and load_schedule(name, 'current', 'next_at', 'every')
  if schedule and (schedule.current == '' or not is_job_live(schedule.current)) then
    schedule.current = unblock_successor(name)
    save_next_fire(schedule)
    set_going = set_going + (schedule.current ~= '' and 1 or 0)
  end
end
for _, name in ipairs(call('ZRANGE', P .. 'intervals', 0, -1)) do
  local schedule = load_schedule(name, 'current', 'next_at', 'every', 'end')
  local stop = schedule and tonumber(schedule['end'])
  -- One whose end is nearer than its interval has stopped.
  local may = schedule and (not stop or stop - (tonumber(schedule.every) or 0) > now or (schedule.current ~= '' and stop > now))
  if may and (schedule.current == '' or not is_job_live(schedule.current)) then
    schedule.current, schedule.next_at = '', now_text
    save_next_fire(schedule)
    set_going = set_going + 1
  end
end
flush_effects()
return set_going
