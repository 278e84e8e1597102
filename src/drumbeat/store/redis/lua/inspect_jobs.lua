-- Ids of jobs, newest buckets first, in no order within a bucket. It looks at a bounded number of jobs and says where to go on.
-- KEYS: 1 the prefix
-- ARGV: 1 where to begin ('+inf', or what was returned), 2 the bucket that was left half-way or '', 3 the cursor within it, 4 only
-- ids below this one, 5 only ids above this one, 6 how many are wanted, 7 how many to look at; wanted: 8 state (not running), 9
-- task, 10 queue, 11 key, 12 a part of the error's type or message ('' for any)
-- returns: where to go on ('' at the end), the bucket that is left half-way or '', the cursor within it, ids
-- include: _places

local number, cursor = ARGV[1], ARGV[3]
local wanted, budget = tonumber(ARGV[6]), tonumber(ARGV[7])
local state, task, queue, key, part = ARGV[8], ARGV[9], ARGV[10], ARGV[11], ARGV[12]
local matched, looked = {}, 0

-- Three numbers that compare as the 16 bytes do.
local function parts(id)
  if id ~= '' then
    return struct.unpack('>I6I6I4', id)
  end
end
local high1, high2, high3 = parts(ARGV[4])
local low1, low2, low3 = parts(ARGV[5])

local function is_between(id)
  local a, b, c = struct.unpack('>I6I6I4', id)
  if high1 and (a > high1 or (a == high1 and (b > high2 or (b == high2 and c >= high3)))) then
    return false
  end
  return not low1 or a > low1 or (a == low1 and (b > low2 or (b == low2 and c > low3)))
end

local function is_of(body)
  local its_task, its_queue = match(body, PLACE)
  if (task ~= '' and its_task ~= task) or (queue ~= '' and its_queue ~= queue) then
    return false
  end
  return key == '' or (sub(body, 1, 1) ~= '-' and head_of(body)[6] == key)
end

local function has_error(id, done)
  local failure = nil
  if done then
    failure = cjson.decode(match(done, '^[^\n]*'))[9]
  else
    local text = call('HGET', P .. 'more', id)
    local json = text and more_of(text).error or ''
    failure = json ~= '' and cjson.decode(json)
  end
  return type(failure) == 'table' and (find(failure.type, part, 1, true) or find(failure.message, part, 1, true))
end

local function is_in_state(id, body, done)
  if done then
    return state_of(done) == state
  end
  return state == 'pending' and is_pending(id, body)
end

local by_body, by_end = task .. queue .. key ~= '', state .. part ~= ''
local bounded = ARGV[4] .. ARGV[5] ~= ''

-- A page of a bucket: ids and bodies, one after the other. Bodies that nobody looks at are left out where the server can do so.
local function page_of(name)
  if not by_body and not by_end then
    local page = redis.pcall('HSCAN', P .. 'job:' .. name, cursor, 'COUNT', 500, 'NOVALUES')
    if not page.err then
      return page[1], page[2], 1
    end
  end
  local page = call('HSCAN', P .. 'job:' .. name, cursor, 'COUNT', 500)
  return page[1], page[2], 2
end

local function look(found, step)
  local ids, bodies, n = {}, {}, 0
  for i = 1, #found, step do
    if (not bounded or is_between(found[i])) and (not by_body or is_of(found[i + 1])) then
      n = n + 1
      ids[n], bodies[n] = found[i], found[i + step - 1]
    end
  end
  local dones = by_end and fetch('done:', ids)
  for i, id in ipairs(ids) do
    if (state == '' or is_in_state(id, bodies[i], dones[i])) and (part == '' or has_error(id, dones[i])) then
      matched[#matched + 1] = id
    end
  end
  looked = looked + #found / step
end

while true do
  local names = call('ZREVRANGEBYSCORE', P .. 'buckets', number, '-inf', 'LIMIT', 0, 100)
  for _, name in ipairs(names) do
    if name ~= ARGV[2] then
      cursor = '0'
    end
    repeat
      local following, found, step = page_of(name)
      cursor = following
      look(found, step)
    until cursor == '0' or looked >= budget
    number = us(tonumber(name, 16))
    if cursor ~= '0' then
      return {number, name, cursor, matched}
    end
    number = '(' .. number
    if #matched >= wanted or looked >= budget then
      return {number, '', '0', matched}
    end
  end
  if #names == 0 then
    return {'', '', '0', matched}
  end
end
