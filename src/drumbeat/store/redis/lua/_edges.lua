-- Edges between jobs as they are stored, and the rules of core/dependencies.py.
--
-- By parent, kid:<bucket>: its one child, or '' if it has several (kids:<parent>); then 'b' if any child binds its result.
-- By child, edge:<bucket>: '1', the parent and the facts of the edge; or, if it has several, '+' and a line for each run of parents
-- that are bound alike: how many, binding, argument. Then the facts are in edges:<child>, and places:<child> has the order.
-- Facts: life,if_fails,binding,m if it was met when it was made,argument
-- include: _base

local function edge_effect(if_fails, edge_life, event, life)
  if life < edge_life then
    return 'nothing'
  end
  if event == 'replayed' then
    return if_fails == 'run' and 'nothing' or 'revive'
  end
  if if_fails == 'run' then
    return (event == 'discarded' or life ~= edge_life) and 'nothing' or 'met'
  end
  if event == 'succeeded' then
    return 'met'
  end
  return event == (if_fails == 'wait' and 'died' or 'discarded') and 'nothing' or 'cancel'
end

local FAILED = {dead = true, cancelled = true, expired = true}
local function judge_edge(if_fails, edge_life, state, life, is_letter)
  if state == 'succeeded' or (if_fails == 'run' and life > edge_life) then
    return 'met'
  end
  if not FAILED[state] then
    return 'nothing'
  end
  if if_fails == 'run' then
    return 'met'
  end
  return is_letter and if_fails == 'wait' and 'nothing' or 'cancel'
end

-- Returns the facts of an edge, or nil if they cannot be read: one table for all edges of which this text is told.
local facts_read = {}
local function read_facts(text)
  local facts = facts_read[text]
  if facts == nil then
    local life, if_fails, binding, is_met, argument = match(text, '^(%d+),(%l+),(%l*),(m?),(.*)$')
    facts = life and {life = tonumber(life), if_fails = if_fails, binding = binding, is_met = is_met == 'm', argument = argument}
    facts_read[text] = facts or false
  end
  return facts or nil
end

-- Returns an edge, or nil if its facts cannot be read.
local function parse_edge(text, parent, place)
  local facts = read_facts(text or '')
  return facts and {
    parent = parent, place = place, life = facts.life, if_fails = facts.if_fails, binding = facts.binding, is_met = facts.is_met,
    argument = facts.argument,
  }
end

-- Returns the edges of a child, given its text of edge:<bucket>, from one place to another (-1: the last).
local function list_edges(child, text, first, last)
  local found = {}
  if sub(text, 1, 1) == '1' then
    found[1] = first <= 0 and parse_edge(sub(text, 18), sub(text, 2, 17), 0) or nil
    return found
  end
  local parents = safe_read('LRANGE', P .. 'places:' .. child, first, last) or {}
  for i, facts in ipairs(bulk_get('HMGET', P .. 'edges:' .. child, parents)) do
    found[#found + 1] = parse_edge(facts, parents[i], first + i - 1)
  end
  return found
end

-- Returns the runs of places of a child that are bound alike: {first, size, binding, argument}.
local function list_runs(text)
  local found, place = {}, 0
  if sub(text, 1, 1) == '1' then
    local edge = parse_edge(sub(text, 18))
    return {edge and {first = 0, size = 1, binding = edge.binding, argument = edge.argument}}
  end
  for size, binding, argument in string.gmatch(text, '(%d+),(%l*),([^\n]*)\n') do
    found[#found + 1] = {first = place, size = tonumber(size), binding = binding, argument = argument}
    place = place + tonumber(size)
  end
  return found
end

-- Returns the text of edge:<bucket> of a child, or nil; and whether it binds a result.
local function edges_text(child)
  local text = safe_read('HGET', P .. 'edge:' .. bucket(child), child)
  local binds = false
  for _, run in ipairs(text and list_runs(text) or {}) do
    binds = binds or run.binding ~= ''
  end
  return text or nil, binds
end

-- The workflow that a body names, or nil. Asked only while there are any.
local workflows = nil
local function workflow_of(body)
  if workflows == nil then
    workflows = exists('workflows')
  end
  local name = workflows and decode_header(body)[17]
  return type(name) == 'string' and name ~= '' and name or nil
end

-- Whether this workflow was cancelled.
local function is_workflow_cancelled(id)
  return id and safe_read('SISMEMBER', P .. 'cancelled_workflows', id) == 1
end

-- Whether a body names a cancelled workflow. Bodies are only decoded while there are any.
local are_any_cancelled = nil
local function is_cancelled_by_workflow(body)
  if are_any_cancelled == nil then
    are_any_cancelled = exists('cancelled_workflows')
  end
  return are_any_cancelled and is_workflow_cancelled(workflow_of(body))
end

-- Names a workflow among those that may be live; the look for live ones removes the others.
local function reopen_workflow(id)
  local name = id and safe_read('HGET', P .. 'workflow:' .. id, 'name')
  if name then
    safe_write('ZADD', P .. 'open_workflows:' .. name, 0, id)
  end
end
