-- Records a heartbeat and returns what the instance must know.
-- KEYS: 1 the prefix
-- ARGV: 1 instance, 2 how many jobs it runs, 3 lease of a wanted leadership (µs; or empty: none)
-- returns: now; and if it is alive: beat, running, {id, token, ...} of requested cancellations, {blocked_on, ...}, {instance, beat,
-- ...} of peers, {instance, term} of the leader or {}, and the next fire of all schedules, or nothing
-- flags: allow-oom
-- touches: alive, inst:<instance>, held:<instance>, cancels:<instance>, blocked_on, leader, next_fires
-- include: _leader
local p, id = KEYS[1], ARGV[1]
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
if not redis.call('ZSCORE', p .. 'alive', id) then return {now} end

local text = string.format('%.0f', now)
local beat = redis.pcall('HINCRBY', p .. 'inst:' .. id, 'beat', 1)
if type(beat) == 'table' then
  -- A damaged counter starts again. An instance whose record has another type is not alive: it registers anew.
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
if redis.call('HLEN', p .. 'blocked_on') > 0 then
  for _, reason in ipairs(redis.call('HKEYS', p .. 'blocked_on')) do
    if #waiting == 1000 then break end
    -- Only the end of a job unblocks what is blocked on a schedule.
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
local next_fire = tonumber(redis.call('ZRANGE', p .. 'next_fires', 0, 0, 'WITHSCORES')[2])
next_fire = next_fire and math.abs(next_fire) < 1e18 and next_fire or false
local running = redis.pcall('ZCARD', p .. 'held:' .. id)
return {now, beat, type(running) == 'number' and running or 0, cancels, waiting, peers, leader, next_fire}
