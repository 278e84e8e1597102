-- Returns the results that one argument of a job gets.
-- KEYS: 1 the prefix
-- ARGV: 1 job, 2 argument, 3 the place after which to begin, 4 limit
-- returns: place, parent, binding, argument, how the parent ended (or nothing), flat
-- include: _parent_results

local child, after, limit, edges = ARGV[1], tonumber(ARGV[3]), tonumber(ARGV[4]), {}
local text = edges_text(child)
for _, run in ipairs(text and list_runs(text) or {}) do
  local first, last = math.max(run.first, after + 1), run.first + run.size - 1
  if run.binding ~= '' and find(' ' .. run.argument .. ' ', ' ' .. ARGV[2] .. ' ', 1, true) then
    last = math.min(last, first + limit - #edges - 1)
    if first <= last then
      extend(edges, list_edges(child, text, first, last))
    end
  end
end
local found, owners = {}, {}
for i = 1, #edges do
  owners[i] = found
end
describe_results(edges, owners)
return found
