-- Stores what an instance has counted, or others for it. Intervals expire after their last write.
-- KEYS: 1 the prefix
-- ARGV: 1 instance, 2 retention of 10 s intervals (s), 3 of minutes (s), 4 its state, alive or dead, then of each roll-up
-- resolution, at, queue NUL task, counts (see stats.py)
-- returns: 1; 0: the instance is in another state
-- include: _prelude
local instance = ARGV[1]
if safe_read('HGET', P .. 'inst:' .. instance, 'state') ~= ARGV[4] then return 0 end
for i = 5, #ARGV, 4 do
  local resolution, at, place, counts = unpack(ARGV, i, i + 3)
  if resolution == '0' then
    safe_write('HSET', P .. 'totals:' .. instance, place, counts)
    call('ZADD', P .. 'totals', now_text, instance)
  else
    local interval = P .. (place == '\0' and 'interval_total:' or 'interval:') .. resolution .. ':' .. at
    safe_write('HSET', interval, place .. '\0' .. instance, counts)
    call('EXPIRE', interval, resolution == '10000000' and ARGV[2] or ARGV[3])
    call('ZADD', P .. 'intervals_of:' .. resolution, at, at)
  end
end
return 1
