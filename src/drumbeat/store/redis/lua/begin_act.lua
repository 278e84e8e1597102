-- Records the beginning of an act, unless its request key belongs to an earlier one.
-- KEYS: 1 the prefix
-- ARGV: 1 id, 2 who, 3 request_key or '', 4 how long a request key is kept (µs), 5 the act (JSON)
-- returns: nothing, or the hash act:<id> (flat) of the earlier act that has the key
-- flags: allow-oom
-- include: _prelude
local id, key = ARGV[1], ARGV[2] .. '\0' .. ARGV[3]
if exists('act:' .. id) then return false end
if ARGV[3] ~= '' then
  local holder = call('HGET', P .. 'audit_keys', key)
  local at = holder and tonumber(call('ZSCORE', P .. 'audit_at', holder) or '')
  if at and at > now - tonumber(ARGV[4]) then
    return {holder, safe_read('HGETALL', P .. 'act:' .. holder) or {}}
  end
  call('HSET', P .. 'audit_keys', key, id)
end
call('HSET', P .. 'act:' .. id, 'act', ARGV[5], 'at', now_text)
call('ZADD', P .. 'audit', 0, id)
call('ZADD', P .. 'audit_at', now_text, id)
return false
