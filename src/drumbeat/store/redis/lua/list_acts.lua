-- Lists audit entries, newest first. Examines a bounded number and returns where to continue.
-- KEYS: 1 the prefix
-- ARGV: 1 only ids before this one, or '', 2 limit, 3 how many to examine; filter: 4 who, 5 the beginning of the
-- verb, 6 target ('' for any); 7 audit, or audit_unended
-- returns: the last id examined ('' at the end), then the hash act:<id> (flat) of each match
-- include: _prelude
local wanted, who, verb, target = tonumber(ARGV[2]), ARGV[4], ARGV[5], ARGV[6]
local any = who .. verb .. target == ''
local from = ARGV[1] == '' and '+' or '(' .. ARGV[1]
local found = {''}

local function is_wanted(id)
  if any then
    return true
  end
  local act = decode_table(safe_read('HGET', P .. 'act:' .. id, 'act'))
  return type(act.verb) == 'string' and sub(act.verb, 1, #verb) == verb
    and (who == '' or act.who == who) and (target == '' or act.target == target)
end

for _, id in ipairs(call('ZREVRANGEBYLEX', P .. ARGV[7], from, '-', 'LIMIT', 0, any and wanted or ARGV[3])) do
  if #found > wanted then break end
  found[1] = id
  if is_wanted(id) then
    append(found, {id, safe_read('HGETALL', P .. 'act:' .. id) or {}})
  end
end
return found
