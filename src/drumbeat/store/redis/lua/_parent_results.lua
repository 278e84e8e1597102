-- What is kept of parents for their children.
-- include: _edges

local function describe_results(edges)
  local parents, found = {}, {}
  for i, edge in ipairs(edges) do
    parents[i] = edge.parent
  end
  local kept = fetch('kept:', parents)
  for i, edge in ipairs(edges) do
    append(found, edge.place, edge.parent, edge.binding, edge.argument, kept[i])
  end
  return found
end
