-- Deletes old intervals, and adds the totals of ended instances to `folded`.
-- KEYS: 1 the prefix
-- ARGV: 1 resolution and 2 before (µs) of one resolution, 3 and 4 of the other, 5 ended before (µs), 6 limit of rows
-- returns: how many rows
-- flags: allow-oom
-- touches: interval:<resolution>:<at>, interval_total:<resolution>:<at>, intervals_of:<resolution>, totals, totals:<instance>, folded
local p, left = KEYS[1], tonumber(ARGV[6])
local CHUNK = 1000

-- Deletes up to `left` fields of an interval; returns whether none is left.
local function clear(stretch)
  local fields = redis.pcall('HKEYS', stretch)
  if fields.err then
    redis.call('DEL', stretch)
    return true
  end
  local most = math.min(#fields, left)
  for first = 1, most, CHUNK do
    redis.call('HDEL', stretch, unpack(fields, first, math.min(first + CHUNK - 1, most)))
  end
  left = left - most
  return most == #fields
end

local function clear_old(resolution, before)
  local index = p .. 'intervals_of:' .. resolution
  while left > 0 do
    local at = redis.call('ZRANGEBYSCORE', index, '-inf', '(' .. before, 'LIMIT', 0, 1)[1]
    if not at then return end
    local place = resolution .. ':' .. at
    if not (clear(p .. 'interval:' .. place) and clear(p .. 'interval_total:' .. place)) then return end
    redis.call('ZREM', index, at)
  end
end

-- The server adds numbers as texts: in a double they would not stay exact.
local function fold(instance)
  local rows = redis.pcall('HGETALL', p .. 'totals:' .. instance)
  if rows.err then
    redis.call('DEL', p .. 'totals:' .. instance)
    rows = {}
  end
  for i = 1, #rows, 2 do
    if left == 0 then return end
    local place, number = rows[i], 0
    for count in string.gmatch(rows[i + 1], '%d+') do
      number = number + 1
      if count ~= '0' then
        redis.pcall('HINCRBY', p .. 'folded', place .. '\0' .. number, count)
      end
    end
    redis.call('HDEL', p .. 'totals:' .. instance, place)
    left = left - 1
  end
  redis.call('ZREM', p .. 'totals', instance)
end

clear_old(ARGV[1], ARGV[2])
clear_old(ARGV[3], ARGV[4])
for _, instance in ipairs(redis.call('ZRANGEBYSCORE', p .. 'totals', '-inf', '(' .. ARGV[5])) do
  if not redis.call('ZSCORE', p .. 'alive', instance) then
    fold(instance)
  end
end
return tonumber(ARGV[6]) - left
