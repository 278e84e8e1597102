-- Records results of steps of running jobs.
-- KEYS: 1 the prefix
-- ARGV: 1 instance, then of each id, token, field of steps:<id> and record (steps.py)
-- returns: for each 1 if it is on record, 0 if the job is not held with this token
-- include: _base

local answers = {}
for at = 2, #ARGV, 4 do
  local id = ARGV[at]
  local score = safe_read('ZSCORE', P .. 'held:' .. ARGV[1], id)
  local is_current = score and tonumber(score) == tonumber(ARGV[at + 1])
  if is_current then
    safe_write('HSETNX', P .. 'steps:' .. id, ARGV[at + 2], ARGV[at + 3])
  end
  answers[#answers + 1] = is_current and 1 or 0
end
return answers
