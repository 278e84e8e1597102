-- Retires schedules that no live instance of their app declares any more.
-- KEYS: 1 the prefix
-- ARGV: 1 last declared before this (µs)
-- returns: their names
-- flags: allow-oom
-- include: _schedule

local silent = call('ZRANGEBYSCORE', P .. 'declared', '-inf', '(' .. ARGV[1])
if #silent == 0 then
  return {}
end
local apps, retired = {}, {}
for _, instance in ipairs(call('ZRANGE', P .. 'alive', 0, -1)) do
  local record = safe_read('HGET', P .. 'inst:' .. instance, 'record')
  local app = record and decode_table(record).app
  if app then
    apps[app] = true
  end
end
for _, name in ipairs(silent) do
  local schedule = load_schedule(name, 'app', 'revision', 'every', 'current')
  if schedule and apps[schedule.app] then
    call('ZREM', P .. 'declared', name)
    schedule.state, schedule.next_at = 'retired', ''
    save_next_fire(schedule)
    call('HSET', schedule_key(name), 'state', 'retired', 'revision', format('%d', (tonumber(schedule.revision) or 0) + 1),
      'changed_at', now_text, 'by', '', 'reason', 'no longer declared')
    retired[#retired + 1] = name
  end
end
return retired
