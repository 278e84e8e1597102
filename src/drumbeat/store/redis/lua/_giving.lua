-- How new jobs are given to idle workers.
--
-- The claim of a worker that runs nothing and found nothing stands: in `standing`, and what it asks for in `asked`: its door, a
-- space, how many, and its queues, each on a line of its own. Whoever adds a job that is due answers it with a message to the
-- door, a channel that nobody else hears. So the job comes to the worker with the call that adds it, and others are not woken. A
-- claim is answered once, or withdrawn by the next claim of its worker. What became due otherwise in the meantime its worker
-- is told, or knows, as ever.
-- include: _adding

-- A worker that lives looks more often than that: another has been stopped, and others should have the job.
local STANDS_FOR = 4000000
local TRIED = 8
-- Bytes for one worker at most: servers close the connection of who is told too much at once, and nodes of a cluster tell each other.
local LARGEST = 262144

-- The claims that stand and are listened to, the latest first: {instance, door, limit, queues (as asked), places, size}.
local function standing()
  local found, since = {}, us(now - STANDS_FOR)
  for _, instance in ipairs(call('ZREVRANGEBYSCORE', P .. 'standing', '+inf', since, 'LIMIT', 0, TRIED)) do
    local door, limit, queues = match(call('HGET', P .. 'asked', instance) or '', '^(%w+) (%d+)(\n.*)$')
    if door and call('PUBSUB', 'NUMSUB', P .. 'door:' .. door)[2] > 0 then
      found[#found + 1] = {instance = instance, door = door, limit = tonumber(limit), queues = queues, places = {}, size = 0}
    end
  end
  return found
end

-- The positions of jobs that are due and whose queue is not paused, in a list for each priority.
local function ready(kinds)
  local found, is_ready, any_paused = {}, {}, exists('paused')
  for i, kind in ipairs(kinds) do
    if is_ready[kind] == nil then
      is_ready[kind] = kind.due <= now and not (any_paused and call('HEXISTS', P .. 'paused', kind.queue) == 1)
    end
    if is_ready[kind] then
      local level = found[kind.priority] or {}
      found[kind.priority] = level
      level[#level + 1] = i
    end
  end
  return found
end

-- Who gets which of these jobs: the claims, each with its places among them, the most urgent first; and all these places as a set.
-- Nothing is written yet.
local function takers(kinds, args)
  local claims, given = standing(), {}
  if #claims == 0 then
    return claims, nil
  end
  local levels = ready(kinds)
  for priority = 0, 9 do
    for _, i in ipairs(levels[priority] or {}) do
      for _, claim in ipairs(claims) do
        if #claim.places < claim.limit and claim.size + #args[i] <= LARGEST
          and find(claim.queues, '\n' .. kinds[i].queue .. '\n', 1, true) then
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
local function give(claims, ids, given)
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
      call('PUBLISH', P .. 'door:' .. claim.door, table.concat(sizes, ' ') .. '\n' .. table.concat(texts))
    end
  end
end
