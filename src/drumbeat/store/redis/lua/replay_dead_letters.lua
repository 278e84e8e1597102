-- Replays dead letters: pending again and due now, unless a live job holds their unique key.
-- KEYS: 1 the prefix
-- ARGV: ids
-- returns: 1 if releases are left, else 0; then for each 1 if it was replayed, 0 if there is no such dead letter, or the id of the job that holds its key
-- include: _dependencies

-- Its last run, if there was one, becomes an earlier attempt.
local function record_last_run(job)
  local finished, outcome, started, who, token, rest = match(
    job.done or '', '^%[(%-?%d+),"%a+",("?%a+"?),(%-?%w+),("?%w+"?),(%d+),null,null,(.*)')
  local stop = rest and find(rest, ']\n', 1, true)
  if stop and outcome ~= 'null' then
    local failure = sub(rest, 1, stop - 1)
    safe_write('RPUSH', P .. 'attempts:' .. job.id,
      '[' .. token .. ',' .. who .. ',' .. outcome .. ',' .. started .. ',' .. finished .. ',' .. failure .. ']')
  end
  return tonumber(token) or 0
end

local function replay(job)
  call('ZREM', P .. 'dead', job.id)
  local token = record_last_run(job)
  local replays = tonumber(match(job.done or '', '\n%-?%d+,%d+,%d+,(%d+)')) or 0
  safe_write('HDEL', P .. 'ended:' .. job.bucket, job.id)
  job.more = {run_at = now, token = token, failures = 0, crashes = 0, replays = replays + 1, error = '', blocked_on = ''}
  local edges, binds = edges_text(job.id)
  if edges then
    job.more.open, job.more.binds = 0, binds  -- it has run: all were met
  end
  if job.flag ~= '-' then
    add_key(key_field(job.flag, job.task, job.head()[6]), job.id)
  end
  if job.lane then
    call('HSET', P .. 'lane_places', job.id, now_text)  -- behind the others
  end
  make_pending(job)
  reopen_workflow(workflow_of(job.body))
  revive_parent(job)
  add_to_counter(job.task, 'dead', -1)
  add_to_counter(job.task, 'live', 1)
end

local answers = {}
for i, id in ipairs(ARGV) do
  local job = call('ZSCORE', P .. 'dead', id) and find_job(id)
  answers[i] = 0
  if job then
    local unique = job.flag == 'l' or job.flag == 'p'
    local other = unique and find_key_holder(job.flag, job.task, job.head()[6])
    if not other then
      replay(job)
    end
    answers[i] = other or 1
  end
end
local is_releasing = advance()
flush_effects()
return {is_releasing, answers}
