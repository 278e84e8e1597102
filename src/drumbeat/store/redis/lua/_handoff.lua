-- Hands new jobs to idle workers.
--
-- The claim of a worker that runs nothing and found nothing is parked: the instance in `parked_claims`, its request in
-- `parked_requests`: the reply channel, limit and slots, and its queues, each on a line of its own. The script that adds a due
-- job answers the claim with a message on the reply channel, to which only that worker subscribes. So the job reaches the worker
-- with the call that adds it, and no other worker is woken. Jobs of lanes enter their lanes first; then the claim is served from
-- these, also when the end of a run has made room. A claim is answered once, or withdrawn by the worker's next claim.
-- Jobs that become due otherwise are announced on `wake`, as for every worker.
-- include: _lane_claim
-- include: _assign_jobs
-- include: _insert_jobs

local assign_to_claims, hand_off, serve_parked_claims
do

-- A live worker claims more often than that; one that does not was stopped, and its jobs should go to others.
local MAX_PARKED_US = 4000000
local MAX_CLAIMS_TRIED = 8
-- Servers close the connection of a subscriber with too much pending output, and cluster nodes forward every message.
local MAX_MESSAGE_BYTES = 262144

-- Returns parked claims whose channel has a subscriber, latest first: {instance, reply_channel, limit, slots, queues, given, size}.
local function parked_claims()
  local found, since = {}, us(now - MAX_PARKED_US)
  for _, instance in ipairs(call('ZREVRANGEBYSCORE', P .. 'parked_claims', '+inf', since, 'LIMIT', 0, MAX_CLAIMS_TRIED)) do
    local channel, limit, slots, queues = match(
      call('HGET', P .. 'parked_requests', instance) or '', '^(%w+) (%d+) (%d+)(\n.*)$')
    if channel and call('PUBSUB', 'NUMSUB', P .. 'reply:' .. channel)[2] > 0 then
      found[#found + 1] = {
        instance = instance, reply_channel = channel, limit = tonumber(limit), slots = tonumber(slots), queues = queues, given = {},
        size = 0,
      }
    end
  end
  return found
end

-- Returns the positions of due jobs whose queue is not paused, as a list for each priority; `others` and jobs of lanes are left out.
local function positions_by_priority(templates, others)
  local found, is_ready, any_paused = {}, {}, exists('paused')
  for i, template in ipairs(templates) do
    if is_ready[template] == nil then
      is_ready[template] = not template.lane and template.due <= now and not (any_paused and call('HEXISTS', P .. 'paused', template.queue) == 1)
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
assign_to_claims = function(templates, args, others)
  local claims, given = parked_claims(), {}
  if #claims == 0 then
    return claims, nil
  end
  local levels = positions_by_priority(templates, others or {})
  for priority = 0, 9 do
    for _, i in ipairs(levels[priority] or {}) do
      for _, claim in ipairs(claims) do
        if #claim.given < claim.limit and claim.size + #args[i] <= MAX_MESSAGE_BYTES
          and find(claim.queues, '\n' .. templates[i].queue .. '\n', 1, true) then
          claim.given[#claim.given + 1] = i
          claim.size = claim.size + #args[i]
          given[i] = true
          break
        end
      end
    end
  end
  return claims, given
end

-- Answers a claim. The message: instance, now and the size of each body, separated by spaces; of a job that has a live state also
-- '+' and the size of that; a newline; then id, body and live state of each job.
local function answer_claim(claim, sizes, texts)
  call('ZREM', P .. 'parked_claims', claim.instance)
  local head = claim.instance .. ' ' .. now_text .. ' ' .. table.concat(sizes, ' ')
  call('PUBLISH', P .. 'reply:' .. claim.reply_channel, head .. '\n' .. table.concat(texts))
end

-- Called once the jobs are written and `given` holds their bodies.
hand_off = function(claims, ids, given)
  for _, claim in ipairs(claims) do
    if #claim.given > 0 then
      local sizes, texts, held = {}, {}, {}
      for n, i in ipairs(claim.given) do
        sizes[n] = #given[i]
        texts[2 * n - 1], texts[2 * n] = ids[i], given[i]
        held[2 * n - 1], held[2 * n] = now_text, ids[i]
      end
      bulk('ZADD', P .. 'held:' .. claim.instance, held)
      answer_claim(claim, sizes, texts)
    end
  end
end

-- Gives jobs of lanes that this script has made ready to parked claims: few, because their size is not known before. The rest is
-- announced. Called before flush_effects, once everything else is written.
local MAX_GIVEN_OF_LANES = 8
serve_parked_claims = function()
  if not lane_effects then
    return
  end

  local function serve_from_lanes(claim, ready)
    claim.lanes_left, claim.places = MAX_LANES, {}
    local picked, limit = {}, math.min(claim.limit, MAX_GIVEN_OF_LANES)
    for queue in pairs(ready) do
      if #picked < limit and find(claim.queues, '\n' .. queue .. '\n', 1, true) then
        local found = claims_of_lanes().look(queue, limit - #picked, claim)
        claims_of_lanes().pick(queue, found, limit - #picked, claim, picked)
      end
    end
    local ids, bodies, mores = assign_jobs(claim.instance, picked, claim.places)
    local sizes, texts = {}, {}
    for i, id in ipairs(ids) do
      sizes[i] = #bodies[i] .. (mores[i] and '+' .. #mores[i] or '')
      append(texts, id, bodies[i], mores[i] or '')
    end
    if #ids > 0 then
      answer_claim(claim, sizes, texts)
    end
  end

  local function ready_queues()
    local ready, any_paused = {}, exists('paused')
    for queue, at in pairs(lanes().news()) do
      if at <= now and not (any_paused and call('HEXISTS', P .. 'paused', queue) == 1) then
        ready[queue] = true
      end
    end
    return ready
  end
  for _, claim in ipairs(next(ready_queues()) and parked_claims() or {}) do
    local ready = ready_queues()
    if not next(ready) then
      break
    end
    serve_from_lanes(claim, ready)
  end
end

end
