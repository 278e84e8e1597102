-- Live jobs by task and key; the rules of core/uniqueness.py. Unique jobs are indexed apart from others, so that finding the holder
-- of a unique key never scans 100,000 jobs that only share it.
-- include: _base

-- The field of the hash `keys`: 'k' or 'u' (unique), task, NUL, key.
local function key_field(flag, task, key)
  key = type(key) == 'string' and key or ''
  return (flag == 'k' and 'k' or 'u') .. task .. '\0' .. key
end

-- Adds a live job. The first one is in the hash, further ones in a set.
local function add_key(field, id)
  if call('HSETNX', P .. 'keys', field, id) == 0 then
    safe_write('SADD', P .. 'keyset:' .. field, id)
  end
end

local function remove_key(field, id)
  if call('HGET', P .. 'keys', field) ~= id then
    safe_write('SREM', P .. 'keyset:' .. field, id)
    return
  end
  local following = safe_read('SPOP', P .. 'keyset:' .. field)
  if following then
    call('HSET', P .. 'keys', field, following)
  else
    call('HDEL', P .. 'keys', field)
  end
end

-- Returns all live jobs of a field.
local function key_ids(field)
  local first = call('HGET', P .. 'keys', field)
  if not first then
    return {}
  end
  local found = safe_read('SMEMBERS', P .. 'keyset:' .. field) or {}
  found[#found + 1] = first
  return found
end

-- Returns whether a live job is pending, blocked or not.
local function is_pending(id, body)
  local _, queue, priority = match(body, HEADER_PATTERN)
  if queue and safe_read('ZSCORE', due_key(queue, priority, lane_of(body)), id) then
    return true
  end
  local text = call('HGET', P .. 'live_state', id)
  return text and parse_live_state(text, body).blocked_on ~= ''
end

-- Ids are compared by their bytes: `<` would go by the server's locale.
local function is_smaller_id(one, other)
  for i = 1, math.min(#one, #other) do
    local a, b = string.byte(one, i), string.byte(other, i)
    if a ~= b then
      return a < b
    end
  end
  return #one < #other
end

-- Returns the live unique job that conflicts with a new one of this flag, the smallest id of several, or nil: for 'p' only
-- pending ones do.
local function find_key_holder(flag, task, key, except_id)
  local holder = nil
  for _, id in ipairs(key_ids(key_field(flag, task, key))) do
    if id ~= except_id and (not holder or is_smaller_id(id, holder)) then
      local body = flag ~= 'l' and safe_read('HGET', P .. 'job:' .. bucket(id), id)
      if flag == 'l' or (body and is_pending(id, body)) then
        holder = id
      end
    end
  end
  return holder
end
