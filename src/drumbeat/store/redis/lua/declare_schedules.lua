-- Records that a running instance declares these schedules.
-- KEYS: 1 the prefix
-- ARGV: names
-- returns: names that do not exist
-- flags: allow-oom
-- include: _schedule

local missing = {}
for _, name in ipairs(ARGV) do
  local schedule = load_schedule(name, 'origin')
  if schedule then
    call('HSET', schedule_key(name), 'declared_at', now_text)
    if schedule.origin == 'code' and schedule.state ~= 'retired' then
      call('ZADD', P .. 'declared', now_text, name)
    end
  else
    missing[#missing + 1] = name
  end
end
return missing
