-- The jobs of a workflow, a page at a time.
-- include: _find_job

-- Returns ids after one ('': from the first), and lists of their bodies and states. Jobs that wait for parents are waiting.
local function read_page(workflow, after, limit)
  local from = after == '' and '-' or '(' .. after
  local ids = safe_read('ZRANGEBYLEX', P .. 'workflow_jobs:' .. workflow, from, '+', 'LIMIT', 0, limit) or {}
  local bodies, dones, mores = fetch('job:', ids), fetch('ended:', ids), bulk_get('HMGET', P .. 'live_state', ids)
  local states = {}
  for i, body in ipairs(bodies) do
    local on = mores[i] and parse_live_state(mores[i], body or '').blocked_on or ''
    if dones[i] then
      states[i] = ended_state(dones[i])
    elseif on ~= '' then
      states[i] = on == 'parents' and 'waiting' or 'pending'
    else
      local _, queue, priority = match(body or '', HEADER_PATTERN)
      states[i] = queue and not safe_read('ZSCORE', due_key(queue, priority, lane_of(body)), ids[i]) and 'running' or 'pending'
    end
  end
  return ids, bodies, states
end
