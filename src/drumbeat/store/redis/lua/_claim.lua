-- Claims jobs. A claim that finds nothing may be parked: see _handoff.lua.
-- include: _transitions
-- include: _lane_claim
-- include: _assign_jobs

local unpaused_queues, pick_jobs, next_due_at, find_limited, unpark_claim, park_claim
do

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

-- Picks jobs that were blocked on something this worker has, and marks them as no longer blocked. Those of lanes enter their
-- lanes, which give them.
local function pop_unblocked(unblocks, open, limit, picked)
  local present = bulk_get('HMGET', P .. 'blocked_on', unblocks)
  for i, reason in ipairs(unblocks) do
    for _, queue in ipairs(present[i] and open or {}) do
      for priority = 0, 9 do
        local key = wait_key(reason, queue, priority)
        local found = #picked < limit
          and safe_read('ZRANGEBYSCORE', key, '-inf', now_text, 'LIMIT', 0, limit - #picked) or {}
        for _, id in ipairs(found) do
          end_wait(reason, queue, priority, id)
          local text = call('HGET', P .. 'live_state', id)
          local job = has_lanes() and load_job(id)
          local more = text and parse_live_state(text, job and job.body)
          if text then
            more.blocked_on = ''
            call('HSET', P .. 'live_state', id, format_live_state(more))
          end
          if job and job.lane then
            job.more = more or {run_at = now}
            add_to_due(job)
          else
            picked[#picked + 1] = id
          end
        end
      end
    end
  end
end

-- Returns the queues of the claim that are not paused, and their shares.
unpaused_queues = function(claim)
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

-- As pop_due, also from lanes: plain jobs and each line that is ready take turns.
local function pop_queue(queue, wanted, picked, claim)
  local ready = has_lanes() and claims_of_lanes().look(queue, wanted, claim) or {}
  if #ready == 0 then
    return pop_due(queue, wanted, picked)
  end
  local kinds = #ready + 1
  local share = math.floor(wanted / kinds) + (now % kinds < wanted % kinds and 1 or 0)
  local plain = share > 0 and pop_due(queue, share, picked) or 0
  local total = plain + claims_of_lanes().pick(queue, ready, wanted - plain, claim, picked)
  if plain == share and total < wanted then
    total = total + pop_due(queue, wanted - total, picked)
  end
  return total
end

pick_jobs = function(claim, open, shares)
  local picked, limit = {}, claim.limit
  if #claim.unblocks > 0 and exists('blocked_on') then
    pop_unblocked(claim.unblocks, open, limit, picked)
  end
  local emptied = {}
  for i, queue in ipairs(open) do
    local share = math.min(shares[i], limit - #picked)
    emptied[i] = share > 0 and pop_queue(queue, share, picked, claim) < share
  end
  for i, queue in ipairs(open) do
    if not emptied[i] and #picked < limit then
      pop_queue(queue, limit - #picked, picked, claim)
    end
  end
  return picked
end

-- Returns the next time at which one of these queues has a due job, or nil.
next_due_at = function(queues, claim)
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
    if has_lanes() then
      local at, has_limited = claims_of_lanes().next_at(queue, claim)
      claim.has_limited = claim.has_limited or has_limited
      first = at and (first and math.min(first, at) or at) or first
    end
  end
  return first
end

-- Finds out whether jobs of limited lines are left for which a claim has no slots.
find_limited = function(queues, claim)
  for _, queue in ipairs(queues) do
    local _, has_limited = claims_of_lanes().next_at(queue, claim)
    claim.has_limited = claim.has_limited or has_limited
  end
end

unpark_claim = function(instance)
  call('ZREM', P .. 'parked_claims', instance)
end

-- Returns 1 if the claim was parked, else 0. Only the claim of a worker that runs nothing is: another may be busy when the answer
-- comes. A full server has no room for it.
park_claim = function(instance, claim)
  check_if_full()
  if is_full or exists('held:' .. instance) then
    unpark_claim(instance)
    return 0
  end
  call('ZADD', P .. 'parked_claims', now_text, instance)
  local request = claim.reply_channel .. ' ' .. claim.limit .. ' ' .. claim.slots .. '\n' .. table.concat(claim.queues, '\n') .. '\n'
  call('HSET', P .. 'parked_requests', instance, request)
  return 1
end

end
