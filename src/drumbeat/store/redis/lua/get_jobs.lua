-- Everything about some jobs.
-- KEYS: 1 the prefix
-- ARGV: ids
-- returns: before when history was pruned, then for each nothing (it is nowhere), or: body, state, more of a live one or done of an
-- ended one, instance, token, 1 if its cancellation was requested, progress
-- include: _find_job

local found = {call('HGET', P .. 'meta', 'pruned_before')}
for i, id in ipairs(ARGV) do
  local job = find_job(id)
  if not job then
    found[i + 1] = false
  elseif job.state ~= 'running' then
    found[i + 1] = {job.body, job.state, job.done or call('HGET', P .. 'more', id)}
  else
    local who = job.instance or ''
    found[i + 1] = {
      job.body, job.state, call('HGET', P .. 'more', id), who, job.token or 0,
      safe_read('SISMEMBER', P .. 'cancels:' .. who, id) or 0, call('HGET', P .. 'progress', id),
    }
  end
end
return found
