-- Sets going what stands still: jobs that wait for a schedule without a live current job, and series without a next moment.
-- KEYS: 1 the prefix
-- ARGV: none
-- returns: how many
-- flags: allow-oom
-- include: _ending

local set_going = 0
for _, why in ipairs(call('HKEYS', P .. 'waiting')) do
  local name = sub(why, 1, 9) == 'schedule:' and sub(why, 10)
  local plan = name and plan_of(name, 'current', 'next_at', 'every')
  if plan and (plan.current == '' or not is_live(plan.current)) then
    plan.current = successor(name)
    keep_moment(plan)
    set_going = set_going + (plan.current ~= '' and 1 or 0)
  end
end
for _, name in ipairs(call('ZRANGE', P .. 'intervals', 0, -1)) do
  local plan = plan_of(name, 'current', 'next_at', 'every', 'end')
  local stop = plan and tonumber(plan['end'])
  -- One with an end may have come to it.
  local may = plan and (not stop or (plan.current ~= '' and stop > now))
  if may and (plan.current == '' or not is_live(plan.current)) then
    plan.current, plan.next_at = '', now_text
    keep_moment(plan)
    set_going = set_going + 1
  end
end
settle_up()
return set_going
