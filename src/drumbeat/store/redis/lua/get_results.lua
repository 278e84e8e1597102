-- How jobs ended.
-- KEYS: 1 the prefix
-- ARGV: ids
-- returns: before when history was pruned, then for each nothing (it is nowhere), or its task and how it ended ('' while it lives)
-- include: _base

local bodies, dones = fetch('job:', ARGV), fetch('done:', ARGV)
local found = {call('HGET', P .. 'meta', 'pruned_before')}
for i, body in ipairs(bodies) do
  found[i + 1] = body and {match(body, TASK_PATTERN) or '', dones[i] or ''}
end
return found
