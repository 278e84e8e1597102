-- Counts jobs of a workflow by state.
-- KEYS: 1 the prefix
-- ARGV: 1 workflow, 2 the id after which to begin ('': the first), 3 limit
-- returns: the last id ('' at the end), 1 if there are more, else 0; then state and number, flat
-- include: _workflow_jobs

local limit = tonumber(ARGV[3])
local ids, _, states = read_page(ARGV[1], ARGV[2], limit)
local found, numbers = {ids[#ids] or '', #ids == limit and 1 or 0}, {}
for _, state in ipairs(states) do
  numbers[state] = (numbers[state] or 0) + 1
end
for state, number in pairs(numbers) do
  append(found, state, number)
end
return found
