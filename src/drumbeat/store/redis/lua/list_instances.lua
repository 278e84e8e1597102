-- Lists instances.
-- KEYS: 1 the prefix
-- ARGV: 1 with ended instances: 1, else 0
-- returns: id and the hash inst:<id> (flat) of each, flat
local prefix, found = KEYS[1], {}
local function add(line)
  for _, id in ipairs(redis.call('ZRANGE', prefix .. line, 0, -1)) do
    found[#found + 1] = id
    local record = redis.pcall('HGETALL', prefix .. 'inst:' .. id)
    found[#found + 1] = record.err and {} or record
  end
end
add('alive')
if ARGV[1] == '1' then add('gone') end
return found
