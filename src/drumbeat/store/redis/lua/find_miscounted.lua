-- Compares the counts of jobs that wait for parents with their edges. Jobs with very many parents are left out: the server would
-- stand still meanwhile.
-- KEYS: 1 the prefix
-- ARGV: 1 how many of the longest waiting to pass over, 2 limit
-- returns: how many were looked at, then job, count and the actual number of those that differ, flat; nothing while releases are left
-- include: _dependencies

local MAX_PARENTS = 10000
local found, first = {0}, tonumber(ARGV[1])
if exists('releasing') then
  return found
end
local ids = safe_read('ZRANGE', P .. 'blocked_since:parents', first, first + tonumber(ARGV[2]) - 1) or {}
for i, text in ipairs(bulk_get('HMGET', P .. 'live_state', ids)) do
  local child, edges = ids[i], edges_text(ids[i])
  if text and edges and (safe_read('LLEN', P .. 'places:' .. child) or 0) <= MAX_PARENTS then
    local open = judge_child(child, edges, nil)
    local counted = parse_live_state(text).open or 0
    if open ~= counted then
      append(found, child, counted, open)
    end
  end
end
found[1] = #ids
return found
