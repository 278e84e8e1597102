-- Returns what jobs get of their parents.
-- KEYS: 1 the prefix
-- ARGV: 1 at most how many for one job, then jobs. Of a binding "results" only the first of each argument
-- returns: of each job a list: place, parent, binding, argument, how the parent ended (or nothing), flat
-- include: _parent_results

local found, limit = {}, tonumber(ARGV[1])
for i = 2, #ARGV do
  local child, edges, seen = ARGV[i], {}, {}
  local text = edges_text(child)
  for _, run in ipairs(text and list_runs(text) or {}) do
    local size = run.binding == '' and 0 or math.min(run.size, limit - #edges)
    if run.binding == 'results' then
      size, seen[run.argument] = seen[run.argument] and 0 or 1, true
    end
    if size > 0 then
      extend(edges, list_edges(child, text, run.first, run.first + size - 1))
    end
  end
  found[i - 1] = describe_results(edges)
end
return found
