-- Returns how jobs ended.
-- KEYS: 1 the prefix
-- ARGV: ids
-- returns: pruned_before, then for each nothing (no such job), or its task and its end record ('' while it is live)
-- include: _base

local bodies, dones = fetch('job:', ARGV), fetch('ended:', ARGV)
local found = {call('HGET', P .. 'meta', 'pruned_before')}
for i, body in ipairs(bodies) do
  found[i + 1] = body and {match(body, TASK_PATTERN) or '', dones[i] or ''}
end
return found
