-- Cancels jobs: a pending one at once; a running one is asked to stop.
-- KEYS: 1 the prefix
-- ARGV: ids
-- returns: the state in which each was found, nothing for one that is nowhere
-- include: _find_job

check_if_full()
allow_adding_when_full()
local states = {}
for i, id in ipairs(ARGV) do
  states[i] = cancel_job(id) or false
end
flush_effects()
return states
