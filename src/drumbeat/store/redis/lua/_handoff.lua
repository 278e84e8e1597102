-- How new jobs are given to idle workers.
--
-- The claim of a worker that runs nothing and found nothing stands: in `parked_claims`, and what it asks for in `asked`: its door, a
-- space, how many, and its queues, each on a line of its own. Whoever adds a job that is due answers it with a message to the
-- door, a channel that nobody else hears. So the job comes to the worker with the call that adds it, and others are not woken. A
-- claim is answered once, or withdrawn by the next claim of its worker. What became due otherwise in the meantime its worker
-- is told, or knows, as ever.
-- include: _insert_jobs

-- A worker that lives looks more often than that: another has been stopped, and others should have the job.
local MAX_PARKED_US = 4000000
local MAX_CLAIMS_TRIED = 8
-- Bytes for one worker at most: servers close the connection of who is told too much at once, and nodes of a cluster tell each other.
local MAX_MESSAGE_BYTES = 262144

-- The claims that stand and are listened to, the latest first: {instance, door, limit, queues (as asked), places, size}.
local function parked_claims()
  local found, since = {}, us(now - MAX_PARKED_US)
  for _, instance in ipairs(call('ZREVRANGEBYSCORE', P .. 'standing', '+inf', since, 'LIMIT', 0, MAX_CLAIMS_TRIED)) do
    local channel, limit, queues = match(call('HGET', P .. 'asked', instance) or '', '^(%w+) (%d+)(\n.*)$')
    if channel and call('PUBSUB', 'NUMSUB', P .. 'door:' .. channel)[2] > 0 then
      found[#found + 1] = {instance = instance, reply_channel = channel, limit = tonumber(limit), queues = queues, places = {}, size = 0}
    end
  end
  return found
end

-- The positions of jobs that are due and whose queue is not paused, in a list for each priority.
local function positions_by_priority(templates)
  local found, is_ready, any_paused = {}, {}, exists('paused')
  for i, template in ipairs(templates) do
    if is_ready[template] == nil then
      is_ready[template] = template.due <= now and not (any_paused and call('HEXISTS', P .. 'paused', template.queue) == 1)
    end
    if is_ready[template] then
      local level = found[template.priority] or {}
      found[template.priority] = level
      level[#level + 1] = i
    end
  end
  return found
end

-- Who gets which of these jobs: the claims, each with its places among them, the most urgent first; and all these places as a set.
-- Nothing is written yet.
local function assign_to_claims(templates, args)
  local claims, given = parked_claims(), {}
  if #claims == 0 then
    return claims, nil
  end
  local levels = positions_by_priority(templates)
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

-- Once the jobs are written, and `given` holds their bodies. The message: instance, now, and the size of each body, by spaces; a
-- newline; and of each job its id and body.
local function hand_off(claims, ids, given)
  for _, claim in ipairs(claims) do
    if #claim.places > 0 then
      local sizes, texts, held = {claim.instance, now_text}, {}, {}
      for n, i in ipairs(claim.places) do
        sizes[n + 2] = #given[i]
        texts[2 * n - 1], texts[2 * n] = ids[i], given[i]
        held[2 * n - 1], held[2 * n] = now_text, ids[i]
      end
      call('ZREM', P .. 'standing', claim.instance)
      bulk('ZADD', P .. 'held:' .. claim.instance, held)
      call('PUBLISH', P .. 'door:' .. claim.reply_channel, table.concat(sizes, ' ') .. '\n' .. table.concat(texts))
    end
  end
end
