-- Makes dead letters of jobs that wait, each only if it still waits since the same moment.
-- KEYS: 1 the prefix
-- ARGV: for each: id, waits_since, error (JSON), 1 with a follow-up (see _ending.lua) or 0
-- returns: how many
-- flags: allow-oom
-- include: _places

local at, dead = 1, 0
while at <= #ARGV do
  local id, since, failure, follow = ARGV[at], tonumber(ARGV[at + 1]), ARGV[at + 2], nil
  at = at + 4
  if ARGV[at - 1] == '1' then
    follow = read_follow_up(at)
    at = at + FOLLOW
  end
  local job = find_job(id)
  if job and job.state == 'pending' and job.more.waits_for ~= '' and job.more.waits_since == since then
    leave_line(job)
    job.token = job.more.token
    end_dead(job, {started = '', finished = '', error = failure}, nil, follow)
    dead = dead + 1
  end
end
settle_up()
return dead
