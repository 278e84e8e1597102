-- An instance says goodbye: what it holds is released unharmed, or cancelled if somebody wants that. Harmless twice.
-- KEYS: 1 the prefix
-- ARGV: 1 instance, 2 why
-- returns: 1, or 0 if it does not live
-- touches: alive, gone, standing, asked, inst:<instance>, and what _transitions.lua does
-- include: _end_instance
local instance = ARGV[1]
if not call('ZSCORE', P .. 'alive', instance) then return 0 end
check_if_full()
end_instance(instance, 'left', ARGV[2])
for _, job in ipairs(load_held_jobs(instance)) do
  apply_outcome(job, UNSTARTED_RUN)
end
call('DEL', P .. 'held:' .. instance, P .. 'cancels:' .. instance)
flush_effects()
return 1
