-- Notes that a running instance declares these schedules now.
-- KEYS: 1 the prefix
-- ARGV: names
-- returns: those that are not there
-- flags: allow-oom
-- include: _scheduling

local missing = {}
for _, name in ipairs(ARGV) do
  local plan = plan_of(name, 'origin')
  if plan then
    call('HSET', plan_key(name), 'declared_at', now_text)
    if plan.origin == 'code' and plan.state ~= 'retired' then
      call('ZADD', P .. 'declared', now_text, name)
    end
  else
    missing[#missing + 1] = name
  end
end
return missing
