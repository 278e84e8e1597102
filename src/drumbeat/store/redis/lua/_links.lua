-- Parents and children of a job, for people.
-- include: _dependencies

-- Returns what people see of an edge: id, task and state of the other job ('' if it is pruned), if_fails, binding, argument, 1 if the
-- child still waits for it, else 0. edge: or its facts; is_waiting: the child waits for parents. parents: as load_parents gives them.
local function describe_link(id, parent, edge, is_waiting, parents)
  local job = find_job(id)
  local is_open = is_waiting and judge_anew(edge, parents[parent]) == 'nothing'
  return {id, job and job.task or '', job and job.state or '', edge.if_fails, edge.binding, edge.argument, is_open and 1 or 0}
end

local function waits_for_parents(id)
  local text = call('HGET', P .. 'live_state', id)
  return text and parse_live_state(text).blocked_on == 'parents'
end
