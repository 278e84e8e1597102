-- Stores jobs, all or none. An id that exists anywhere is not stored again, nor is a unique job whose key is held.
-- KEYS: 1 the prefix
-- ARGV: new jobs (see _read_jobs.lua)
-- returns: now, and for each job that was not stored its position and the id that stands for it, flat
-- include: _handoff
-- include: _read_jobs

local ascend, jobs = read_jobs(1)
local ids, template_of, args, keys = jobs.ids, jobs.templates, jobs.args, jobs.keys
local refused = find_refused(jobs)
if #refused > 0 then
  jobs = without_refused(jobs, refused)
  ids, template_of, args, keys = jobs.ids, jobs.templates, jobs.args, jobs.keys
end
if #ids > 0 then
  local claims, given = assign_to_claims(template_of, args)
  insert_jobs(ids, template_of, args, keys, ascend, given)
  hand_off(claims, ids, given)
  serve_parked_claims()
  flush_effects()
end
return {now, refused}
