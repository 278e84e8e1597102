-- Returns the full records of jobs.
-- KEYS: 1 the prefix
-- ARGV: ids
-- returns: pruned_before, then for each nothing (no such job), or: body, state, live state or end record, instance, token, 1 if its cancellation was requested, progress
-- include: _find_job

local found = {call('HGET', P .. 'meta', 'pruned_before')}
for i, id in ipairs(ARGV) do
  local job = find_job(id)
  if not job then
    found[i + 1] = false
  elseif job.state ~= 'running' then
    found[i + 1] = {job.body, job.state, job.done or call('HGET', P .. 'live_state', id)}
  else
    local who = job.instance or ''
    found[i + 1] = {
      job.body, job.state, call('HGET', P .. 'live_state', id), who, job.token or 0,
      safe_read('SISMEMBER', P .. 'cancels:' .. who, id) or 0, call('HGET', P .. 'progress', id),
    }
  end
end
return found
