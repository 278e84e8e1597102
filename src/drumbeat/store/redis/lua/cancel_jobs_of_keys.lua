-- Cancels all live jobs of a task with one of these keys.
-- KEYS: 1 the prefix
-- ARGV: 1 task, then keys
-- returns: the state in which each was found
-- include: _find_job

check_if_full()
allow_adding_when_full()
local states = {}
for i = 2, #ARGV do
  for _, flag in ipairs({'u', 'k'}) do
    for _, id in ipairs(key_ids(key_field(flag, ARGV[1], ARGV[i]))) do
      states[#states + 1] = cancel_job(id)
    end
  end
end
flush_effects()
return states
