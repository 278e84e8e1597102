-- Reads lines.
-- KEYS: 1 the prefix
-- ARGV: queue and name of each; none: all
-- returns: now, then for each queue, name and fields: policy, declared, version, override, changed_at, changed_by, reason, running, starts,
-- revision, reordering, rule
-- include: _lanes

local wanted, found = {}, {now}
for i = 1, #ARGV, 2 do
  wanted[#wanted + 1] = {ARGV[i], ARGV[i + 1]}
end
for _, queue in ipairs(#ARGV == 0 and call('SMEMBERS', P .. 'lane_queues') or {}) do
  for _, name in ipairs(lanes().lines_of(queue)) do
    wanted[#wanted + 1] = {queue, name}
  end
end
for i, each in ipairs(wanted) do
  local fields = safe_read('HMGET', P .. 'line:' .. each[1] .. '\0' .. each[2], 'policy', 'declared', 'version', 'override', 'changed_at',
    'changed_by', 'reason', 'running', 'starts', 'revision', 'reordering', 'rule')
  found[i + 1] = {each[1], each[2], fields or {}}
end
return found
