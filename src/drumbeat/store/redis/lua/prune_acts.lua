-- Deletes the oldest audit entries.
-- KEYS: 1 the prefix
-- ARGV: 1 before (µs), 2 limit
-- returns: how many
-- flags: allow-oom
-- touches: audit, audit_at, audit_keys, act:<id>
local p = KEYS[1]
local ids = redis.call('ZRANGEBYSCORE', p .. 'audit_at', '-inf', '(' .. ARGV[1], 'LIMIT', 0, ARGV[2])
for _, id in ipairs(ids) do
  local record = redis.pcall('HGET', p .. 'act:' .. id, 'act')
  local is_json, act = pcall(cjson.decode, type(record) == 'string' and record or '{}')
  if is_json and type(act) == 'table' and type(act.request_key) == 'string' and type(act.who) == 'string' then
    local key = act.who .. '\0' .. act.request_key
    if redis.call('HGET', p .. 'audit_keys', key) == id then
      redis.call('HDEL', p .. 'audit_keys', key)
    end
  end
  redis.call('DEL', p .. 'act:' .. id)
  redis.call('ZREM', p .. 'audit', id)
  redis.call('ZREM', p .. 'audit_at', id)
end
return #ids
