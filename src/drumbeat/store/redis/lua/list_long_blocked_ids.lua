-- Lists jobs that have been blocked for too long. Jobs may wait for parents as long as it takes.
-- KEYS: 1 the prefix
-- ARGV: 1 what their blocked_on begins with, 2 blocked_since before this (µs), 3 limit
-- returns: now, then ids
-- include: _base

local found, limit = {now}, tonumber(ARGV[3])
for _, reason in ipairs(call('HKEYS', P .. 'blocked_on')) do
  if sub(reason, 1, #ARGV[1]) == ARGV[1] and reason ~= 'parents' and #found <= limit then
    local index = P .. 'blocked_since:' .. reason
    extend(found, safe_read('ZRANGEBYSCORE', index, '-inf', '(' .. ARGV[2], 'LIMIT', 0, limit + 1 - #found) or {})
  end
end
return found
