-- Lists audit entries, newest first. Examines a bounded number and returns where to continue.
-- KEYS: 1 the prefix
-- ARGV: 1 only ids before this one, or '', 2 limit, 3 how many to examine; filter: 4 who, 5 the beginning of the
-- verb, 6 target ('' for any)
-- returns: the last id examined ('' at the end), then the hash act:<id> (flat) of each match
local p, wanted = KEYS[1], tonumber(ARGV[2])
local who, verb, target = ARGV[4], ARGV[5], ARGV[6]
local any = who .. verb .. target == ''
local from = ARGV[1] == '' and '+' or '(' .. ARGV[1]
local found = {''}

local function is_wanted(record)
  if any then
    return true
  end
  local is_json, act = pcall(cjson.decode, record)
  if not is_json or type(act) ~= 'table' or type(act.verb) ~= 'string' then
    return false
  end
  return (who == '' or act.who == who) and (target == '' or act.target == target)
    and string.sub(act.verb, 1, #verb) == verb
end

for _, id in ipairs(redis.call('ZREVRANGEBYLEX', p .. 'audit', from, '-', 'LIMIT', 0, any and wanted or ARGV[3])) do
  if #found > wanted then break end
  found[1] = id
  local act = p .. 'act:' .. id
  local record = redis.pcall('HGET', act, 'act')
  if is_wanted(type(record) == 'string' and record or '') then
    local fields = redis.pcall('HGETALL', act)
    found[#found + 1] = {id, fields.err and {} or fields}
  end
end
return found
