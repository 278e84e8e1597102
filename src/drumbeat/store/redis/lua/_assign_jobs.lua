-- Gives picked jobs to an instance.
-- include: _lanes

-- Assigns the picked jobs to an instance. Returns ids, bodies and live states (empty if none has one). places: the lanes of jobs.
local function assign_jobs(instance, picked, places)
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
    elseif places[id] then  -- no such job
      lanes().leave(places[id].queue, places[id].name, 1)
    end
  end
  bulk('ZADD', P .. 'held:' .. instance, list)
  return ids, bodies, mores
end
