-- Ends an instance that leaves: its jobs are released uncharged, or cancelled if that was requested. Whether they had started is
-- unknown: each is recorded as a run. Idempotent.
-- KEYS: 1 the prefix
-- ARGV: 1 instance, 2 reason
-- returns: 1, or 0 if it is not alive; 1 if releases are left
-- include: _end_instance
-- include: _dependencies
local instance = ARGV[1]
if not call('ZSCORE', P .. 'alive', instance) then return {0, 0} end
check_if_full()
end_instance(instance, 'left', ARGV[2])
for _, job in ipairs(load_held_jobs(instance)) do
  apply_outcome(job, {kind = 'released', started = us(job.token), finished = '', delay = 0, blocked_on = '', error = ''})
end
call('DEL', P .. 'held:' .. instance, P .. 'cancels:' .. instance)
local is_releasing = advance()
flush_effects()
return {1, is_releasing}
