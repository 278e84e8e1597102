-- Retires schedules of code that nobody declares any more, though instances of the same app live.
-- KEYS: 1 the prefix
-- ARGV: 1 declared last before this moment (µs)
-- returns: their names
-- flags: allow-oom
-- include: _scheduling

local silent = call('ZRANGEBYSCORE', P .. 'declared', '-inf', '(' .. ARGV[1])
if #silent == 0 then
  return {}
end
local apps, retired = {}, {}
for _, instance in ipairs(call('ZRANGE', P .. 'alive', 0, -1)) do
  local record = ask('HGET', P .. 'inst:' .. instance, 'record')
  local app = record and table_of(record).app
  if app then
    apps[app] = true
  end
end
for _, name in ipairs(silent) do
  local plan = plan_of(name, 'app', 'revision', 'every', 'current')
  if plan and apps[plan.app] then
    call('ZREM', P .. 'declared', name)
    plan.state, plan.next_at = 'retired', ''
    keep_moment(plan)
    call('HSET', plan_key(name), 'state', 'retired', 'revision', format('%d', (tonumber(plan.revision) or 0) + 1),
      'changed_at', now_text, 'by', '', 'why', 'no longer declared')
    retired[#retired + 1] = name
  end
end
return retired
