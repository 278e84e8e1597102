-- Adds a live instance. Idempotent.
-- KEYS: 1 the prefix
-- ARGV: 1 instance, 2 its record (JSON), 3 version, 4 oldest_code, 5 a random id for a new store
-- returns: 1 if it was added, else 0
-- flags: allow-oom
-- include: _schema
local id = ARGV[1]
if exists('inst:' .. id) then return 0 end
ensure_meta(unpack(ARGV, 3))
call('HSET', P .. 'inst:' .. id, 'record', ARGV[2], 'state', 'alive', 'started_at', now_text, 'beat_at', now_text,
  'beat', 0, 'running', 0, 'refused', 0)
call('ZADD', P .. 'alive', now_text, id)
return 1
