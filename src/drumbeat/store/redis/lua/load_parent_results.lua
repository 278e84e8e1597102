-- Returns what jobs get of their parents.
-- KEYS: 1 the prefix
-- ARGV: 1 at most how many for one job, then jobs. Of a binding "results" only the first of each argument
-- returns: of each job a list: place, parent, binding, argument, how the parent ended (or nothing), flat
-- include: _parent_results

local found, limit = {}, tonumber(ARGV[1])
local children = {unpack(ARGV, 2)}
local edges, owners = {}, {}
for i, text in ipairs(fetch('edge:', children)) do
  found[i] = {}
  for _, edge in ipairs(text and list_bound(children[i], text, limit) or {}) do
    edges[#edges + 1], owners[#owners + 1] = edge, found[i]
  end
end
describe_results(edges, owners)
return found
