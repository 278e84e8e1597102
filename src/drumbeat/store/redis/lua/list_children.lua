-- Lists the children of jobs by id.
-- KEYS: 1 the prefix
-- ARGV: 1 limit for each, then jobs
-- returns: of each job a list of links (see _links.lua)
-- include: _links

local found, limit = {}, tonumber(ARGV[1])

local function links_of(parent)
  local kid = safe_read('HGET', P .. 'kid:' .. bucket(parent), parent)
  local children = children_of(parent, '', kid, limit)
  local same, links, parents = {}, {}, load_parents({parent})
  for i in ipairs(children) do
    same[i] = parent
  end
  for i, facts in ipairs(find_facts(same, children)) do
    if facts then
      append(links, describe_link(children[i], parent, facts, waits_for_parents(children[i]), parents))
    end
  end
  return links
end

for i = 2, #ARGV do
  found[i - 1] = links_of(ARGV[i])
end
return found
