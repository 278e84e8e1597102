-- Resumes a queue and wakes workers.
-- KEYS: 1 the prefix
-- ARGV: 1 queue
-- returns: 1, or 0 if it was not paused
-- include: _base

local resumed = call('HDEL', P .. 'paused', ARGV[1])
if resumed == 1 then
  wake_at(0)
  flush_effects()
end
return resumed
