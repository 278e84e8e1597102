-- Claims jobs. A claim that finds nothing may be parked: see _handoff.lua.
-- include: _transitions

-- Returns the keys of a queue's due jobs, most urgent priority first, and how many of them exist. A single one is nearly always
-- that of the default priority, which then comes first.
local USUAL_PRIORITY = 5
-- Beyond any valid time.
local NEVER = 1e18
local function due_keys_of(queue)
  local keys = {}
  for priority = 0, 9 do
    keys[priority + 1] = due_key(queue, priority)
  end
  local filled = call('EXISTS', unpack(keys))
  if filled == 1 then
    keys[1], keys[USUAL_PRIORITY + 1] = keys[USUAL_PRIORITY + 1], keys[1]
  end
  return keys, filled
end

-- Moves the next due jobs of a queue to `picked`, by priority. Returns how many.
local function pop_due(queue, wanted, picked)
  local keys, filled = due_keys_of(queue)
  local left = wanted
  for _, key in ipairs(keys) do
    if left <= 0 or filled == 0 then
      break
    end
    local found = safe_read('ZRANGEBYSCORE', key, '-inf', now_text, 'LIMIT', 0, left) or {}
    if #found > 0 then
      call('ZREMRANGEBYRANK', key, 0, #found - 1)
      filled = filled - 1
    end
    extend(picked, found)
    left = left - #found
  end
  return wanted - left
end

-- Picks jobs that were blocked on something this worker has, and marks them as no longer blocked.
local function pop_unblocked(unblocks, open, limit, picked)
  local present = bulk_get('HMGET', P .. 'blocked_on', unblocks)
  for i, reason in ipairs(unblocks) do
    for _, queue in ipairs(present[i] and open or {}) do
      for priority = 0, 9 do
        local key = wait_key(reason, queue, priority)
        local found = #picked < limit
          and safe_read('ZRANGEBYSCORE', key, '-inf', now_text, 'LIMIT', 0, limit - #picked) or {}
        for _, id in ipairs(found) do
          picked[#picked + 1] = id
          end_wait(reason, queue, priority, id)
          local text = call('HGET', P .. 'live_state', id)
          if text then
            local more = parse_live_state(text)
            more.blocked_on = ''
            call('HSET', P .. 'live_state', id, format_live_state(more))
          end
        end
      end
    end
  end
end

-- Returns the queues of the claim that are not paused, and their shares.
local function unpaused_queues(claim)
  local paused = exists('paused') and bulk_get('HMGET', P .. 'paused', claim.queues) or {}
  local open, shares = {}, {}
  for i, queue in ipairs(claim.queues) do
    if not paused[i] then
      local n = #open + 1
      open[n], shares[n] = queue, claim.shares[i]
    end
  end
  return open, shares
end

local function pick_jobs(claim, open, shares)
  local picked, limit = {}, claim.limit
  if #claim.unblocks > 0 and exists('blocked_on') then
    pop_unblocked(claim.unblocks, open, limit, picked)
  end
  local emptied = {}
  for i, queue in ipairs(open) do
    local share = math.min(shares[i], limit - #picked)
    emptied[i] = share > 0 and pop_due(queue, share, picked) < share
  end
  for i, queue in ipairs(open) do
    if not emptied[i] and #picked < limit then
      pop_due(queue, limit - #picked, picked)
    end
  end
  return picked
end

-- Assigns the picked jobs to an instance. Returns ids, bodies and live states (empty if none has one).
local function assign_jobs(instance, picked)
  local known = exists('live_state') and bulk_get('HMGET', P .. 'live_state', picked)
  local found, list, n = fetch('job:', picked), {}, 0
  local ids, bodies, mores = {}, {}, {}
  for i, id in ipairs(picked) do
    if found[i] and #id == 16 then
      local token = now_text
      n = n + 1
      ids[n], bodies[n] = id, found[i]
      if known then
        mores[n] = known[i]
        if known[i] then
          -- As parse_live_state, faster.
          local last = match(known[i], '^%-?%d+,(%d+),%d+,%d+,%d+,%d*,?%d*b?\n[^\n]*\n')
          last = tonumber(last) or 0
          token = last < now and now_text or us(last + 1)
        end
      end
      list[2 * n - 1], list[2 * n] = token, id
    end
  end
  bulk('ZADD', P .. 'held:' .. instance, list)
  return ids, bodies, mores
end

-- Returns the next time at which one of these queues has a due job, or nil.
local function next_due_at(queues)
  local first = nil
  for _, queue in ipairs(queues) do
    local keys, filled = due_keys_of(queue)
    for _, key in ipairs(keys) do
      if filled == 0 then
        break
      end
      local found = safe_read('ZRANGEBYSCORE', key, '(' .. now_text, '+inf', 'WITHSCORES', 'LIMIT', 0, 1) or {}
      local moment = tonumber(found[2])
      if moment and moment < NEVER then
        filled = filled - 1
        first = first and math.min(first, moment) or moment
      end
    end
  end
  return first
end

local function unpark_claim(instance)
  call('ZREM', P .. 'parked_claims', instance)
end

-- Returns 1 if the claim was parked, else 0. Only the claim of a worker that runs nothing is: another may be busy when the answer
-- comes. A full server has no room for it.
local function park_claim(instance, claim)
  check_if_full()
  if is_full or exists('held:' .. instance) then
    unpark_claim(instance)
    return 0
  end
  call('ZADD', P .. 'parked_claims', now_text, instance)
  local request = claim.reply_channel .. ' ' .. claim.limit .. '\n' .. table.concat(claim.queues, '\n') .. '\n'
  call('HSET', P .. 'parked_requests', instance, request)
  return 1
end
