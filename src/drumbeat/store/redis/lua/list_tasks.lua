-- Lists tasks with their numbers of jobs.
-- KEYS: 1 the prefix
-- ARGV: none
-- returns: counters ("task NUL what" and how many, flat); task and running, flat; records of live instances
-- include: _running_jobs

local running = {}
local records = for_each_running(function(task)
  running[task] = (running[task] or 0) + 1
end)
return {call('HGETALL', P .. 'count'), flatten(running), records}
