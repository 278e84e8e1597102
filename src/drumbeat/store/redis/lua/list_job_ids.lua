-- Lists recorded ids, newest buckets first: single ids and the bounds of runs (see _base.lua), unordered within a bucket. A bucket
-- without such a record (damaged) is listed id by id.
-- KEYS: 1 the prefix
-- ARGV: 1 where to begin ('+inf', the number of a bucket, or what was returned), 2 the number of the last bucket, 3 limit
-- returns: where to continue ('' at the end), then name and list of each bucket
-- include: _base

local begin, enough = ARGV[1], tonumber(ARGV[3])

local function list_bucket(name)
  local list, size = safe_read('LRANGE', P .. 'ids:' .. name, 0, -1) or {}, safe_read('HLEN', P .. 'job:' .. name) or 0
  local n = #list
  if n < size then
    n = 0
    for _, entry in ipairs(list) do
      n = n + (#entry == 16 and 1 or tonumber(sub(entry, 33)) or 0)
    end
  end
  return n >= size and list or safe_read('HKEYS', P .. 'job:' .. name) or {}
end

local found, given = {''}, 0
while true do
  local names = call('ZREVRANGEBYSCORE', P .. 'buckets', begin, ARGV[2], 'LIMIT', 0, 100)
  for _, name in ipairs(names) do
    local list = list_bucket(name)
    append(found, name, list)
    given = given + #list
    for _, entry in ipairs(list) do
      if #entry > 16 then
        given = given + (tonumber(sub(entry, 33)) or 0)
      end
    end
    begin = '(' .. call('ZSCORE', P .. 'buckets', name)
    if given >= enough then
      found[1] = begin
      return found
    end
  end
  if #names == 0 then
    return found
  end
end
