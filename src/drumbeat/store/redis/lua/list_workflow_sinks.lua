-- Lists jobs of a workflow that no other job waits for.
-- KEYS: 1 the prefix
-- ARGV: 1 workflow, 2 the id after which to begin ('': the first), 3 how many jobs to look at
-- returns: the last id that was looked at ('' at the end), then ids
-- include: _edges

local from = ARGV[2] == '' and '-' or '(' .. ARGV[2]
local ids = safe_read('ZRANGEBYLEX', P .. 'workflow_jobs:' .. ARGV[1], from, '+', 'LIMIT', 0, ARGV[3]) or {}
local found = {#ids == tonumber(ARGV[3]) and ids[#ids] or ''}
for i, kid in ipairs(fetch('kid:', ids)) do
  if not kid then
    found[#found + 1] = ids[i]
  end
end
return found
