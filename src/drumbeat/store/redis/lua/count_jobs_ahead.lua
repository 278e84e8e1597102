-- How many ready jobs of a queue would be claimed before a pending job; of a job of a lane: of its lane.
-- KEYS: 1 the prefix
-- ARGV: 1 queue, 2 priority, 3 run_at and 4 id of the job, 5 its lane (or '')
-- returns: how many
-- include: _lanes

local queue, own_priority, run_at, id = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4]
local lane = ARGV[5] ~= '' and ARGV[5] or nil
if lane and lanes().line(queue, match(lane, '^[^ ]*')).order ~= '' then
  local place, before = safe_read('ZSCORE', due_key(queue, own_priority, lane), id), 0
  for priority = 0, place and 9 or -1 do
    local key = due_key(queue, priority, lane)
    -- Jobs of one call have one place; their ids say who is first.
    local first = priority == own_priority and safe_read('ZRANK', key, id)
    before = before + (first or safe_read('ZCOUNT', key, '-inf', '(' .. place) or 0)
  end
  return before
end
local ahead = 0
for priority = 0, own_priority - 1 do
  ahead = ahead + (safe_read('ZCOUNT', due_key(queue, priority, lane), '-inf', now_text) or 0)
end
if run_at <= now then
  return ahead + (safe_read('ZRANK', due_key(queue, own_priority, lane), id) or 0)
end
return ahead + (safe_read('ZCOUNT', due_key(queue, own_priority, lane), '-inf', now_text) or 0)
