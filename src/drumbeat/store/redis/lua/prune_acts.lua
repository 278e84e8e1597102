-- Deletes the oldest audit entries.
-- KEYS: 1 the prefix
-- ARGV: 1 before (µs), 2 limit
-- returns: how many
-- flags: allow-oom
-- include: _prelude
local ids = call('ZRANGEBYSCORE', P .. 'audit_at', '-inf', '(' .. ARGV[1], 'LIMIT', 0, ARGV[2])
for _, id in ipairs(ids) do
  local act = decode_table(safe_read('HGET', P .. 'act:' .. id, 'act'))
  if type(act.request_key) == 'string' and type(act.who) == 'string' then
    local key = act.who .. '\0' .. act.request_key
    if call('HGET', P .. 'audit_keys', key) == id then
      call('HDEL', P .. 'audit_keys', key)
    end
  end
  call('DEL', P .. 'act:' .. id)
  call('ZREM', P .. 'audit', id)
  call('ZREM', P .. 'audit_at', id)
  call('ZREM', P .. 'audit_unended', id)
end
return #ids
