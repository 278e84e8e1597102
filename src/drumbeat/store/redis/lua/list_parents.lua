-- Lists the parents of jobs, open ones first, then by place. Of a job with very many not all are looked at.
-- KEYS: 1 the prefix
-- ARGV: 1 limit for each, then jobs
-- returns: of each job a list of links (see _links.lua)
-- include: _links

local MAX_LOOKED, AT_ONCE = 10000, 500
local found, limit, looked = {}, tonumber(ARGV[1]), 0

local function links_of(child)
  local text, is_waiting, first, open, others = edges_text(child), waits_for_parents(child), 0, {}, {}
  repeat
    local edges, ids = text and list_edges(child, text, first, first + AT_ONCE - 1) or {}, {}
    for i, edge in ipairs(edges) do
      ids[i] = edge.parent
    end
    local parents = load_parents(ids)
    for _, edge in ipairs(edges) do
      local is_open = is_waiting and judge_anew(edge, parents[edge.parent]) == 'nothing'
      local list = is_open and open or others
      if #list < limit then
        list[#list + 1] = describe_link(edge.parent, edge.parent, edge, is_waiting, parents)
      end
    end
    first, looked = first + AT_ONCE, looked + #edges
  until #edges == 0 or #open >= limit or (looked >= MAX_LOOKED and #open + #others >= limit)
  for _, link in ipairs(others) do
    if #open < limit then
      open[#open + 1] = link
    end
  end
  return open
end

for i = 2, #ARGV do
  found[i - 1] = links_of(ARGV[i])
end
return found
