-- Running jobs and the records of live instances.
-- include: _base

-- Counts running jobs by task (by = 1) or queue (by = 2). Returns names and numbers, flat, and the records (JSON) of all live
-- instances.
local function count_running(by)
  local numbers, flat, records = {}, {}, {}
  for _, instance in ipairs(call('ZRANGE', P .. 'alive', 0, -1)) do
    records[#records + 1] = safe_read('HGET', P .. 'inst:' .. instance, 'record') or nil
    for _, body in ipairs(fetch('job:', safe_read('ZRANGE', P .. 'held:' .. instance, 0, -1) or {})) do
      local name = ({match(body or '', HEADER_PATTERN)})[by]
      if name then
        numbers[name] = (numbers[name] or 0) + 1
      end
    end
  end
  for name, number in pairs(numbers) do
    append(flat, name, number)
  end
  return flat, records
end
