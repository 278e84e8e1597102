-- Cancels jobs: a pending one at once; a running one is asked to stop.
-- KEYS: 1 the prefix
-- ARGV: 1 '', then ids; or a task, then keys: all its live jobs that have one of these
-- returns: 1 if releases are left, else 0; the state in which each was found, nothing for one that is nowhere
-- include: _dependencies

local task, ids, states = ARGV[1], {}, {}
for i = 2, #ARGV do
  if task == '' then
    append(ids, ARGV[i])
  else
    extend(ids, key_ids(key_field('u', task, ARGV[i])))
    extend(ids, key_ids(key_field('k', task, ARGV[i])))
  end
end
check_if_full()
allow_adding_when_full()
for i, id in ipairs(ids) do
  states[i] = cancel_job(id) or false
end
local is_releasing = advance()
flush_effects()
return {is_releasing, states}
