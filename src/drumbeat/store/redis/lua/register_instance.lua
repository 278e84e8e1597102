-- Adds a live instance. Idempotent.
-- KEYS: 1 the prefix
-- ARGV: 1 instance, 2 its record (JSON), 3 version, 4 oldest_code, 5 a random id for a new store
-- returns: 1 if it was added, else 0
-- flags: allow-oom
-- touches: meta, alive, inst:<instance>
-- include: _schema
local p, id = KEYS[1], ARGV[1]
if redis.call('EXISTS', p .. 'inst:' .. id) == 1 then return 0 end
local time = redis.call('TIME')
local now = string.format('%.0f', time[1] * 1000000 + time[2])
ensure_meta(p, ARGV[3], ARGV[4], ARGV[5])
redis.call('HSET', p .. 'inst:' .. id, 'record', ARGV[2], 'state', 'alive', 'started_at', now, 'beat_at', now,
  'beat', 0, 'running', 0, 'refused', 0)
redis.call('ZADD', p .. 'alive', now, id)
return 1
