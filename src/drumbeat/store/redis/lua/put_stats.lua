-- Stores what an instance has counted, or others for it. Intervals expire after their last write.
-- KEYS: 1 the prefix
-- ARGV: 1 instance, 2 its state, alive or dead, then of each roll-up resolution, retention (s), at, queue NUL task,
-- counts (see stats.py)
-- returns: 1; 0: the instance is in another state
-- include: _prelude
local instance = ARGV[1]
if safe_read('HGET', P .. 'inst:' .. instance, 'state') ~= ARGV[2] then return 0 end
for i = 3, #ARGV, 5 do
  local resolution, retention, at, place, counts = unpack(ARGV, i, i + 4)
  if resolution == '0' then
    safe_write('HSET', P .. 'totals:' .. instance, place, counts)
    call('ZADD', P .. 'totals', now_text, instance)
  else
    local interval = P .. (place == '\0' and 'interval_total:' or 'interval:') .. resolution .. ':' .. at
    safe_write('HSET', interval, place .. '\0' .. instance, counts)
    call('EXPIRE', interval, retention)
    call('ZADD', P .. 'intervals_of:' .. resolution, at, at)
  end
end
return 1
