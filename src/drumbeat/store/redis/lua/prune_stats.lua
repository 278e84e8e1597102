-- Deletes old intervals, and adds the totals of ended instances to `folded`.
-- KEYS: 1 the prefix
-- ARGV: 1 resolution and 2 before (µs) of one resolution, 3 and 4 of the other, 5 ended before (µs), 6 limit of rows
-- returns: how many rows
-- flags: allow-oom
-- include: _prelude
local left = tonumber(ARGV[6])

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

clear_old(ARGV[1], ARGV[2])
clear_old(ARGV[3], ARGV[4])
for _, instance in ipairs(call('ZRANGEBYSCORE', P .. 'totals', '-inf', '(' .. ARGV[5])) do
  if not call('ZSCORE', P .. 'alive', instance) then
    fold(instance)
  end
end
return tonumber(ARGV[6]) - left
