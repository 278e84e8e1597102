-- Records the beginning of an act, unless its request key belongs to an earlier one.
-- KEYS: 1 the prefix
-- ARGV: 1 id, 2 who, 3 request_key or '', 4 how long a request key is kept (µs), 5 the act (JSON)
-- returns: nothing, or the hash act:<id> (flat) of the earlier act that has the key
-- flags: allow-oom
-- touches: audit, audit_at, audit_keys, act:<id>
local p, id, key = KEYS[1], ARGV[1], ARGV[2] .. '\0' .. ARGV[3]
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
if redis.call('EXISTS', p .. 'act:' .. id) == 1 then return false end
if ARGV[3] ~= '' then
  local holder = redis.call('HGET', p .. 'audit_keys', key)
  local at = holder and tonumber(redis.call('ZSCORE', p .. 'audit_at', holder) or '')
  if at and at > now - tonumber(ARGV[4]) then
    local earlier = redis.pcall('HGETALL', p .. 'act:' .. holder)
    return {holder, earlier.err and {} or earlier}
  end
  redis.call('HSET', p .. 'audit_keys', key, id)
end
local text = string.format('%.0f', now)
redis.call('HSET', p .. 'act:' .. id, 'act', ARGV[5], 'at', text)
redis.call('ZADD', p .. 'audit', 0, id)
redis.call('ZADD', p .. 'audit_at', text, id)
return false
