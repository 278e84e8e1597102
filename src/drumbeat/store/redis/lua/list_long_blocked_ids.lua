-- Lists jobs that have been blocked for too long.
-- KEYS: 1 the prefix
-- ARGV: 1 what their blocked_on begins with, 2 blocked_since before this (µs), 3 limit
-- returns: now, then ids
-- include: _base

local found, limit = {now}, tonumber(ARGV[3])
for _, reason in ipairs(call('HKEYS', P .. 'blocked_on')) do
  if sub(reason, 1, #ARGV[1]) == ARGV[1] and #found <= limit then
    local ids = safe_read('ZRANGEBYSCORE', P .. 'blocked_since:' .. reason, '-inf', '(' .. ARGV[2], 'LIMIT', 0, limit + 1 - #found) or {}
    for _, id in ipairs(ids) do
      found[#found + 1] = id
    end
  end
end
return found
