-- Hands new jobs to idle workers.
--
-- The claim of a worker that runs nothing and found nothing is parked: the instance in `parked_claims`, its request in
-- `parked_requests`: the reply channel, a space, the limit, and its queues, each on a line of its own. The script that adds a due
-- job answers the claim with a message on the reply channel, to which only that worker subscribes. So the job reaches the worker
-- with the call that adds it, and no other worker is woken. A claim is answered once, or withdrawn by the worker's next claim.
-- Jobs that become due otherwise are announced on `wake`, as for every worker.
-- include: _insert_jobs

-- A live worker claims more often than that; one that does not was stopped, and its jobs should go to others.
local MAX_PARKED_US = 4000000
local MAX_CLAIMS_TRIED = 8
-- Servers close the connection of a subscriber with too much pending output, and cluster nodes forward every message.
local MAX_MESSAGE_BYTES = 262144

-- Returns parked claims whose channel has a subscriber, latest first: {instance, reply_channel, limit, queues, places, size}.
local function parked_claims()
  local found, since = {}, us(now - MAX_PARKED_US)
  for _, instance in ipairs(call('ZREVRANGEBYSCORE', P .. 'parked_claims', '+inf', since, 'LIMIT', 0, MAX_CLAIMS_TRIED)) do
    local channel, limit, queues = match(call('HGET', P .. 'parked_requests', instance) or '', '^(%w+) (%d+)(\n.*)$')
    if channel and call('PUBSUB', 'NUMSUB', P .. 'reply:' .. channel)[2] > 0 then
      found[#found + 1] = {
        instance = instance, reply_channel = channel, limit = tonumber(limit), queues = queues, places = {}, size = 0,
      }
    end
  end
  return found
end

-- Returns the positions of due jobs whose queue is not paused, as a list for each priority; `others` are left out.
local function positions_by_priority(templates, others)
  local found, is_ready, any_paused = {}, {}, exists('paused')
  for i, template in ipairs(templates) do
    if is_ready[template] == nil then
      is_ready[template] = template.due <= now and not (any_paused and call('HEXISTS', P .. 'paused', template.queue) == 1)
    end
    if is_ready[template] and not others[i] then
      local level = found[template.priority] or {}
      found[template.priority] = level
      level[#level + 1] = i
    end
  end
  return found
end

-- Decides which claim gets which of these jobs, most urgent first. Returns the claims, each with the positions of its jobs, and
-- all these positions as a set. others: positions of jobs that are not handed off, as a set, or nil. Writes nothing.
local function assign_to_claims(templates, args, others)
  local claims, given = parked_claims(), {}
  if #claims == 0 then
    return claims, nil
  end
  local levels = positions_by_priority(templates, others or {})
  for priority = 0, 9 do
    for _, i in ipairs(levels[priority] or {}) do
      for _, claim in ipairs(claims) do
        if #claim.places < claim.limit and claim.size + #args[i] <= MAX_MESSAGE_BYTES
          and find(claim.queues, '\n' .. templates[i].queue .. '\n', 1, true) then
          claim.places[#claim.places + 1] = i
          claim.size = claim.size + #args[i]
          given[i] = true
          break
        end
      end
    end
  end
  return claims, given
end

-- Called once the jobs are written and `given` holds their bodies. The message: instance, now and the size of each body, separated
-- by spaces; a newline; then id and body of each job.
local function hand_off(claims, ids, given)
  for _, claim in ipairs(claims) do
    if #claim.places > 0 then
      local sizes, texts, held = {claim.instance, now_text}, {}, {}
      for n, i in ipairs(claim.places) do
        sizes[n + 2] = #given[i]
        texts[2 * n - 1], texts[2 * n] = ids[i], given[i]
        held[2 * n - 1], held[2 * n] = now_text, ids[i]
      end
      call('ZREM', P .. 'parked_claims', claim.instance)
      bulk('ZADD', P .. 'held:' .. claim.instance, held)
      call('PUBLISH', P .. 'reply:' .. claim.reply_channel, table.concat(sizes, ' ') .. '\n' .. table.concat(texts))
    end
  end
end
