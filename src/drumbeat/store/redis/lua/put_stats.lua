-- Stores what an instance has counted, or others for it. Intervals expire after their last write.
-- KEYS: 1 the prefix
-- ARGV: 1 instance, 2 retention of 10 s intervals (s), 3 of minutes (s), 4 its state, alive or dead, then of each roll-up
-- resolution, at, queue NUL task, counts (see stats.py)
-- returns: 1; 0: the instance is in another state
-- touches: interval:<resolution>:<at>, interval_total:<resolution>:<at>, intervals_of:<resolution>, totals, totals:<instance>
local p, instance = KEYS[1], ARGV[1]

-- Deletes a key of another type.
local function safe_write(key, field, value)
  local answer = redis.pcall('HSET', key, field, value)
  if type(answer) == 'table' then
    if string.find(answer.err, 'WRONGTYPE', 1, true) then redis.call('DEL', key) end
    redis.call('HSET', key, field, value)
  end
end

if redis.pcall('HGET', p .. 'inst:' .. instance, 'state') ~= ARGV[4] then return 0 end
local time = redis.call('TIME')
local now = string.format('%.0f', time[1] * 1000000 + time[2])
for i = 5, #ARGV, 4 do
  local resolution, at, place, counts = ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3]
  if resolution == '0' then
    safe_write(p .. 'totals:' .. instance, place, counts)
    redis.call('ZADD', p .. 'totals', now, instance)
  else
    local stretch = p .. (place == '\0' and 'interval_total:' or 'interval:') .. resolution .. ':' .. at
    safe_write(stretch, place .. '\0' .. instance, counts)
    redis.call('EXPIRE', stretch, resolution == '10000000' and ARGV[2] or ARGV[3])
    redis.call('ZADD', p .. 'intervals_of:' .. resolution, at, at)
  end
end
return 1
