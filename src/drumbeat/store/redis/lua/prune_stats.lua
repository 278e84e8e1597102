-- Deletes old intervals, and adds the totals of ended instances to `folded`.
-- KEYS: 1 the prefix
-- ARGV: 1 ended before (µs), 2 limit of rows, then of each resolution: itself, and before (µs)
-- returns: how many rows
-- flags: allow-oom
-- include: _prelude
local left = tonumber(ARGV[2])

-- Deletes up to `left` fields of an interval; returns whether none is left.
local function clear(interval)
  local fields = safe_read('HKEYS', interval)
  if not fields then
    call('DEL', interval)
    return true
  end
  local most = math.min(#fields, left)
  for first = 1, most, CHUNK do
    call('HDEL', interval, unpack(fields, first, math.min(first + CHUNK - 1, most)))
  end
  left = left - most
  return most == #fields
end

local function clear_old(resolution, before)
  local index = P .. 'intervals_of:' .. resolution
  while left > 0 do
    local at = call('ZRANGEBYSCORE', index, '-inf', '(' .. before, 'LIMIT', 0, 1)[1]
    if not at then return end
    local place = resolution .. ':' .. at
    if not (clear(P .. 'interval:' .. place) and clear(P .. 'interval_total:' .. place)) then return end
    call('ZREM', index, at)
  end
end

-- The server adds numbers as texts: in a double they would not stay exact.
local function fold(instance)
  local totals = P .. 'totals:' .. instance
  local rows = safe_read('HGETALL', totals)
  if not rows then
    call('DEL', totals)
  end
  for i = 1, #(rows or {}), 2 do
    if left == 0 then return end
    local place, number = rows[i], 0
    for count in string.gmatch(rows[i + 1], '%d+') do
      number = number + 1
      if count ~= '0' then
        try('HINCRBY', P .. 'folded', place .. '\0' .. number, count)
      end
    end
    call('HDEL', totals, place)
    left = left - 1
  end
  call('ZREM', P .. 'totals', instance)
end

for i = 3, #ARGV, 2 do
  clear_old(ARGV[i], ARGV[i + 1])
end
for _, instance in ipairs(call('ZRANGEBYSCORE', P .. 'totals', '-inf', '(' .. ARGV[1])) do
  if not call('ZSCORE', P .. 'alive', instance) then
    fold(instance)
  end
end
return tonumber(ARGV[2]) - left
