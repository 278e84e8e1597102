-- Lists tasks with their numbers of jobs.
-- KEYS: 1 the prefix
-- ARGV: none
-- returns: counters ("task NUL what" and how many, flat); task and running, flat; records of live instances
-- include: _running_jobs

return {call('HGETALL', P .. 'count'), count_running(1)}
