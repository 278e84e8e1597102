-- Ends an instance that leaves: its jobs are released uncharged, or cancelled if that was requested. Idempotent.
-- KEYS: 1 the prefix
-- ARGV: 1 instance, 2 reason
-- returns: 1, or 0 if it is not alive
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
