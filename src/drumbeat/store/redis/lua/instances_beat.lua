-- One beat, and everything that an instance must know.
-- KEYS: 1 the prefix
-- ARGV: 1 instance, 2 how many jobs it runs
-- returns: now; and if it lives: beat, running, {id, token, ...} wanted cancelled, {why, ...} waited for, {instance, beat, ...}
-- flags: allow-oom
-- touches: alive, inst:<instance>, held:<instance>, cancels:<instance>, waiting
local p, id = KEYS[1], ARGV[1]
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
if not redis.call('ZSCORE', p .. 'alive', id) then return {now} end

local text = string.format('%.0f', now)
local beat = redis.call('HINCRBY', p .. 'inst:' .. id, 'beat', 1)
redis.call('HSET', p .. 'inst:' .. id, 'beat_at', text, 'running', ARGV[2])
redis.call('ZADD', p .. 'alive', text, id)

local cancels = {}
for _, job in ipairs(redis.call('SMEMBERS', p .. 'cancels:' .. id)) do
  local token = redis.call('ZSCORE', p .. 'held:' .. id, job)
  if token then
    cancels[#cancels + 1] = job
    cancels[#cancels + 1] = token
  end
end

local waiting = {}
if redis.call('HLEN', p .. 'waiting') > 0 then
  for _, why in ipairs(redis.call('HKEYS', p .. 'waiting')) do
    if #waiting == 1000 then break end
    waiting[#waiting + 1] = why
  end
end

local peers = {}
for _, peer in ipairs(redis.call('ZRANGE', p .. 'alive', 0, -1)) do
  if peer ~= id then
    peers[#peers + 1] = peer
    peers[#peers + 1] = redis.call('HGET', p .. 'inst:' .. peer, 'beat') or '0'
  end
end
return {now, beat, redis.call('ZCARD', p .. 'held:' .. id), cancels, waiting, peers}
