-- Jobs that have waited too long for something other than time.
-- KEYS: 1 the prefix
-- ARGV: 1 what their blocked_on begins with, 2 since before when they wait (µs), 3 how many at most
-- returns: now, then ids
-- include: _base

local found, limit = {now}, tonumber(ARGV[3])
for _, reason in ipairs(call('HKEYS', P .. 'waiting')) do
  if sub(reason, 1, #ARGV[1]) == ARGV[1] and #found <= limit then
    local ids = safe_read('ZRANGEBYSCORE', P .. 'waits:' .. reason, '-inf', '(' .. ARGV[2], 'LIMIT', 0, limit + 1 - #found) or {}
    for _, id in ipairs(ids) do
      found[#found + 1] = id
    end
  end
end
return found
