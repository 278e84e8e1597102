-- Reads what one instance wrote.
-- KEYS: 1 the prefix
-- ARGV: 1 instance, 2 since (µs), then resolutions
-- returns: when it last wrote (µs) or nothing; its totals as a flat list; then of each roll-up resolution, at, queue NUL task, counts
local p, instance = KEYS[1], ARGV[1]
local found = {redis.call('ZSCORE', p .. 'totals', instance), redis.call('HGETALL', p .. 'totals:' .. instance)}
for i = 3, #ARGV do
  for _, at in ipairs(redis.call('ZRANGEBYSCORE', p .. 'intervals_of:' .. ARGV[i], ARGV[2], '+inf')) do
    for _, kind in ipairs({'interval:', 'interval_total:'}) do
      local flat = redis.call('HGETALL', p .. kind .. ARGV[i] .. ':' .. at)
      for j = 1, #flat, 2 do
        local place, who = string.match(flat[j], '^([^%z]*%z[^%z]*)%z(.*)$')
        if who == instance then
          for _, value in ipairs({ARGV[i], at, place, flat[j + 1]}) do
            found[#found + 1] = value
          end
        end
      end
    end
  end
end
return found
