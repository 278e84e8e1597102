-- Common to all scripts: the prefix P, the time `now` (µs), commands that survive damage, and lists.
--
-- µs are exact in a double, but `..` and tostring would write them as 1.79e+15: always use us(n). Strings are never compared
-- by `<`, which depends on the server's locale.
local P = KEYS[1]
local call, try, format, sub, find, match = redis.call, redis.pcall, string.format, string.sub, string.find, string.match
local CHUNK = 1000
local clock = call('TIME')
local now = clock[1] * 1000000 + clock[2]

local function us(n)
  return format('%.0f', n)
end
local now_text = us(now)

local function exists(name)
  return call('EXISTS', P .. name) == 1
end

-- Stored records may be damaged: a key of another type, a text that does not parse. A script must not fail on one of them,
-- above all not after its first write, which would leave the others half done. So keys of one record, index or bucket are read
-- with `safe_read` and written with `safe_write`.

-- Reads; false if the key has another type.
local function safe_read(...)
  local answer = try(...)
  if type(answer) == 'table' and answer.err then
    return false
  end
  return answer
end

-- Writes; a key of another type is deleted first, as is a counter that is no number.
local function safe_write(command, key, ...)
  local answer = try(command, key, ...)
  if type(answer) == 'table' and answer.err then
    if find(answer.err, 'WRONGTYPE', 1, true) then
      call('DEL', key)
    elseif find(answer.err, 'not an integer', 1, true) then
      call('HDEL', key, (...))
    end
    return call(command, key, ...)
  end
  return answer
end

-- Decodes JSON text; an empty table if it is no array or object.
local function decode_table(text)
  local is_json, value = pcall(cjson.decode, text)
  return is_json and type(value) == 'table' and value or {}
end

-- Appends the values of another list.
local function extend(list, values)
  local n = #list
  for i = 1, #values do
    list[n + i] = values[i]
  end
end

local function append(list, ...)
  extend(list, {...})
end
