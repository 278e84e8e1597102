-- What is kept of parents for their children.
-- include: _edges

-- Returns the edges by which a child gets results, given its text of edge:<bucket>: at most `limit`, and of a binding "results" only the
-- first of each argument.
local function list_bound(child, text, limit)
  if sub(text, 1, 1) == '1' then
    local edge = parse_edge(sub(text, 18), sub(text, 2, 17), 0)
    return {edge and edge.binding ~= '' and edge or nil}
  end
  local edges, seen = {}, {}
  for _, run in ipairs(list_runs(text)) do
    local size = run.binding == '' and 0 or math.min(run.size, limit - #edges)
    if run.binding == 'results' then
      size, seen[run.argument] = seen[run.argument] and 0 or 1, true
    end
    if size > 0 then
      extend(edges, list_edges(child, text, run.first, run.first + size - 1))
    end
  end
  return edges
end

-- Adds what is kept of each edge's parent to the list of its owner.
local function describe_results(edges, owners)
  local parents = {}
  for i, edge in ipairs(edges) do
    parents[i] = edge.parent
  end
  local kept = fetch('kept:', parents)
  for i, edge in ipairs(edges) do
    local list = owners[i]
    local n = #list
    list[n + 1], list[n + 2], list[n + 3], list[n + 4], list[n + 5] = edge.place, edge.parent, edge.binding, edge.argument, kept[i]
  end
end
