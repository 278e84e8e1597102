-- Stores the progress of running jobs.
-- KEYS: 1 the prefix
-- ARGV: 1 instance, then of each id, token and progress (a JSON string)
-- returns: nothing
-- include: _base

local kept = {}
for at = 2, #ARGV, 3 do
  local score = call('ZSCORE', P .. 'held:' .. ARGV[1], ARGV[at])
  if score and tonumber(score) == tonumber(ARGV[at + 1]) then
    append(kept, ARGV[at], ARGV[at + 2])
  end
end
check_if_full()
if not is_full then
  bulk('HSET', P .. 'progress', kept)
end
