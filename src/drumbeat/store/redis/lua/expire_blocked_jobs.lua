-- Makes dead letters of blocked jobs, each only if blocked_since is unchanged.
-- KEYS: 1 the prefix
-- ARGV: for each: id, blocked_since, error (JSON), its follow-up (see _transitions.lua: read_follow_up)
-- returns: 1 if releases are left, else 0; how many
-- flags: allow-oom
-- include: _dependencies

check_if_full()
local at, dead = 1, 0
while at <= #ARGV do
  local id, since, failure, follow = ARGV[at], tonumber(ARGV[at + 1]), ARGV[at + 2], nil
  follow, at = read_follow_up(at + 3)
  local job = find_job(id)
  if job and job.state == 'pending' and job.more.blocked_on ~= '' and job.more.blocked_since == since then
    remove_from_queue(job)
    job.token = job.more.token
    finish_dead(job, {started = '', finished = '', error = failure}, nil, follow)
    dead = dead + 1
  end
end
local is_releasing = advance()
flush_effects()
return {is_releasing, dead}
