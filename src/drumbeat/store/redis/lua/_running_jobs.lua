-- Running jobs and the records of live instances.
-- include: _base

-- Calls visit(task, queue) for each running job; returns the records (JSON) of all live instances.
local function for_each_running(visit)
  local records = {}
  for _, instance in ipairs(call('ZRANGE', P .. 'alive', 0, -1)) do
    records[#records + 1] = safe_read('HGET', P .. 'inst:' .. instance, 'record') or nil
    for _, body in ipairs(fetch('job:', safe_read('ZRANGE', P .. 'held:' .. instance, 0, -1) or {})) do
      local task, queue = match(body or '', HEADER_PATTERN)
      if task then
        visit(task, queue)
      end
    end
  end
  return records
end

-- Flattens a table to a list.
local function flatten(counted)
  local list = {}
  for name, n in pairs(counted) do
    list[#list + 1] = name
    list[#list + 1] = n
  end
  return list
end
