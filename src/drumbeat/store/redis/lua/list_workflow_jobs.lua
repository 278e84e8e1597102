-- Lists jobs of a workflow with their parents.
-- KEYS: 1 the prefix
-- ARGV: 1 workflow, 2 the id after which to begin ('': the first), 3 limit, 4 at most about how many edges
-- returns: of each job id, task, state and its edges: parent, if_fails, binding, flat. Fewer jobs than the limit if there are too many
-- edges
-- include: _workflow_jobs

local found, left = {}, tonumber(ARGV[4])
local ids, bodies, states = read_page(ARGV[1], ARGV[2], tonumber(ARGV[3]))
local texts = fetch('edge:', ids)
for i, id in ipairs(ids) do
  local edges = texts[i] and list_edges(id, texts[i], 0, -1) or {}
  local flat = {}
  for n, edge in ipairs(edges) do
    flat[3 * n - 2], flat[3 * n - 1], flat[3 * n] = edge.parent, edge.if_fails, edge.binding
  end
  found[i] = {id, match(bodies[i] or '', TASK_PATTERN) or '', states[i], flat}
  left = left - #edges
  if left <= 0 then
    break
  end
end
return found
