-- Releases claims that never started.
-- KEYS: 1 the prefix
-- ARGV: 1 instance, then id and token of each
-- returns: how many were current
-- include: _transitions

check_if_full()
local instance, current = ARGV[1], 0
for at = 2, #ARGV, 2 do
  local score = call('ZSCORE', P .. 'held:' .. instance, ARGV[at])
  local job = score and tonumber(score) == tonumber(ARGV[at + 1]) and load_held_job(instance, ARGV[at], tonumber(score))
  if job then
    apply_outcome(job, UNSTARTED_RUN)
    current = current + 1
  end
end
flush_effects()
return current
