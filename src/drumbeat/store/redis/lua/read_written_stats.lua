-- Reads what one instance wrote.
-- KEYS: 1 the prefix
-- ARGV: 1 instance, then of each resolution: itself, and after which beginning (µs)
-- returns: when it last wrote (µs) or nothing; its totals as a flat list; then of each roll-up resolution, at, queue NUL task, counts
-- include: _prelude
local instance = ARGV[1]
local found = {call('ZSCORE', P .. 'totals', instance), call('HGETALL', P .. 'totals:' .. instance)}
for i = 2, #ARGV, 2 do
  for _, at in ipairs(call('ZRANGEBYSCORE', P .. 'intervals_of:' .. ARGV[i], '(' .. ARGV[i + 1], '+inf')) do
    for _, kind in ipairs({'interval:', 'interval_total:'}) do
      local flat = call('HGETALL', P .. kind .. ARGV[i] .. ':' .. at)
      for j = 1, #flat, 2 do
        local place, who = match(flat[j], '^([^%z]*%z[^%z]*)%z(.*)$')
        if who == instance then
          append(found, ARGV[i], at, place, flat[j + 1])
        end
      end
    end
  end
end
return found
