-- Records a heartbeat and returns what the instance must know.
-- KEYS: 1 the prefix
-- ARGV: 1 instance, 2 how many jobs it runs, 3 lease of a wanted leadership (µs; or empty: none)
-- returns: now; and if it is alive: beat, running, {id, token, ...} of requested cancellations, {blocked_on, ...}, {instance, beat,
-- ...} of peers, {instance, term ...} of the leader or {}, and the next fire of all schedules, or nothing
-- flags: allow-oom
-- include: _leader
local id, record = ARGV[1], P .. 'inst:' .. ARGV[1]
if not call('ZSCORE', P .. 'alive', id) then return {now} end

local beat = try('HINCRBY', record, 'beat', 1)
if type(beat) == 'table' then
  -- A damaged counter starts again. An instance whose record has another type is not alive: it registers anew.
  if find(beat.err, 'WRONGTYPE', 1, true) then
    call('DEL', record)
    call('ZREM', P .. 'alive', id)
    return {now}
  end
  call('HSET', record, 'beat', 1)
  beat = 1
end
call('HSET', record, 'beat_at', now_text, 'running', ARGV[2])
call('ZADD', P .. 'alive', now_text, id)
if ARGV[3] == '' then
  give_up_lead(id)
else
  take_lead(id, tonumber(ARGV[3]))
end

local cancels = {}
for _, job in ipairs(safe_read('SMEMBERS', P .. 'cancels:' .. id) or {}) do
  local token = safe_read('ZSCORE', P .. 'held:' .. id, job)
  if token then
    append(cancels, job, token)
  end
end

local waiting = {}
for _, reason in ipairs(call('HKEYS', P .. 'blocked_on')) do
  if #waiting == 1000 then break end
  -- Only the end of a job unblocks what is blocked on a schedule or on parents.
  if sub(reason, 1, 9) ~= 'schedule:' and reason ~= 'parents' then
    append(waiting, reason)
  end
end

local peers = {}
for _, peer in ipairs(call('ZRANGE', P .. 'alive', 0, -1)) do
  if peer ~= id then
    append(peers, peer, safe_read('HGET', P .. 'inst:' .. peer, 'beat') or '0')
  end
end
local next_fire = tonumber(call('ZRANGE', P .. 'next_fires', 0, 0, 'WITHSCORES')[2])
next_fire = next_fire and math.abs(next_fire) < 1e18 and next_fire or false
return {now, beat, safe_read('ZCARD', P .. 'held:' .. id) or 0, cancels, waiting, peers, current_leader() or {}, next_fire}
