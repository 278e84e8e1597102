-- Deletes the oldest ended jobs with all that belongs to them, and some names of empty queues.
-- KEYS: 1 the prefix
-- ARGV: 1 finished before this (µs), 2 limit
-- returns: how many
-- flags: allow-oom
-- include: _find_job

local ids = call('ZRANGEBYSCORE', P .. 'history', '-inf', '(' .. ARGV[1], 'LIMIT', 0, ARGV[2])
if #ids == 0 then
  return 0
end
local bodies, dones = fetch('job:', ids), fetch('ended:', ids)
bulk('ZREM', P .. 'history', ids)
bulk('ZREM', P .. 'unsucceeded', ids)
forget_links(ids, bodies)
local tries = {}
for_each_bucket(ids, function(name, first, last)
  safe_write('HDEL', P .. 'job:' .. name, unpack(ids, first, last))
  safe_write('HDEL', P .. 'ended:' .. name, unpack(ids, first, last))
  compact_bucket(name, last - first + 1)
end)
for i, id in ipairs(ids) do
  append(tries, P .. 'attempts:' .. id, P .. 'children:' .. id, P .. 'steps:' .. id, P .. 'signals:' .. id)
  if bodies[i] and dones[i] then
    add_to_counter(match(bodies[i], TASK_PATTERN) or '', ended_state(dones[i]), -1)
  end
end
for first = 1, #tries, CHUNK do
  call('DEL', unpack(tries, first, math.min(first + CHUNK - 1, #tries)))
end
advance_pruned_before(tonumber(ARGV[1]))
for _, queue in ipairs(call('SRANDMEMBER', P .. 'queues', 3)) do
  local lines = {}
  for priority = 0, 9 do
    lines[priority + 1] = due_key(queue, priority)
  end
  if call('EXISTS', unpack(lines)) == 0 and not (has_lanes() and safe_read('HGET', P .. 'lane_pending', queue)) then
    call('SREM', P .. 'queues', queue)
  end
end
flush_effects()
return #ids
