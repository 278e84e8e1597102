-- One beat, and everything that an instance must know.
-- KEYS: 1 the prefix
-- ARGV: 1 instance, 2 how many jobs it runs, 3 for how long it wants to lead (µs; or empty: it does not)
-- returns: now; and if it lives: beat, running, {id, token, ...} wanted cancelled, {why, ...} waited for, {instance, beat, ...}
-- of others, {instance, term} of the leader, or {}, and the first moment of all schedules, or nothing
-- flags: allow-oom
-- touches: alive, inst:<instance>, held:<instance>, cancels:<instance>, waiting, leader, moments
-- include: _leader
local p, id = KEYS[1], ARGV[1]
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
if not redis.call('ZSCORE', p .. 'alive', id) then return {now} end

local text = string.format('%.0f', now)
local beat = redis.pcall('HINCRBY', p .. 'inst:' .. id, 'beat', 1)
if type(beat) == 'table' then
  -- A count that is no number begins anew. One whose whole record is of another type is not alive: it registers anew.
  if string.find(beat.err, 'WRONGTYPE', 1, true) then
    redis.call('DEL', p .. 'inst:' .. id)
    redis.call('ZREM', p .. 'alive', id)
    return {now}
  end
  redis.call('HSET', p .. 'inst:' .. id, 'beat', 1)
  beat = 1
end
redis.call('HSET', p .. 'inst:' .. id, 'beat_at', text, 'running', ARGV[2])
redis.call('ZADD', p .. 'alive', text, id)
if ARGV[3] == '' then
  give_up_lead(p, id)
else
  take_lead(p, id, now, tonumber(ARGV[3]))
end

local cancels = {}
local wanted = redis.pcall('SMEMBERS', p .. 'cancels:' .. id)
for _, job in ipairs(wanted) do
  local token = redis.pcall('ZSCORE', p .. 'held:' .. id, job)
  if type(token) == 'string' then
    cancels[#cancels + 1] = job
    cancels[#cancels + 1] = token
  end
end

local waiting = {}
if redis.call('HLEN', p .. 'waiting') > 0 then
  for _, reason in ipairs(redis.call('HKEYS', p .. 'waiting')) do
    if #waiting == 1000 then break end
    -- Nobody but the end of a job sets free what waits for a schedule.
    if string.sub(reason, 1, 9) ~= 'schedule:' then
      waiting[#waiting + 1] = reason
    end
  end
end

local peers = {}
for _, peer in ipairs(redis.call('ZRANGE', p .. 'alive', 0, -1)) do
  if peer ~= id then
    peers[#peers + 1] = peer
    local count = redis.pcall('HGET', p .. 'inst:' .. peer, 'beat')
    peers[#peers + 1] = type(count) == 'string' and count or '0'
  end
end
local leader = {}
local who, term, ends = unpack(redis.call('HMGET', p .. 'leader', 'instance', 'term', 'until'))
if who and (tonumber(ends) or 0) > now then
  leader = {who, term}
end
local next_fire = tonumber(redis.call('ZRANGE', p .. 'moments', 0, 0, 'WITHSCORES')[2])
next_fire = next_fire and math.abs(next_fire) < 1e18 and next_fire or false
local running = redis.pcall('ZCARD', p .. 'held:' .. id)
return {now, beat, type(running) == 'number' and running or 0, cancels, waiting, peers, leader, next_fire}
