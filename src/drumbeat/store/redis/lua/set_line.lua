-- Writes a line, if nobody has written it since it was read.
-- KEYS: 1 the prefix
-- ARGV: 1 queue, 2 name, 3 its revision as read (or ''), 4 number of weights, then group and weight of each; then fields and values
-- ('now' is the time)
-- returns: 1, or 0 if somebody has
-- flags: allow-oom
-- include: _lanes

local queue, name = ARGV[1], ARGV[2]
local id = queue .. '\0' .. name
local key = P .. 'line:' .. id
local revision = safe_read('HGET', key, 'revision') or ''
if revision ~= ARGV[3] then
  return 0
end
local weights, fields, at = {}, {'revision', us((tonumber(revision) or 0) + 1)}, 5
for _ = 1, tonumber(ARGV[4]) do
  append(weights, ARGV[at], ARGV[at + 1])
  at = at + 2
end
for i = at, #ARGV, 2 do
  append(fields, ARGV[i], ARGV[i + 1] == 'now' and now_text or ARGV[i + 1])
end
safe_write('HSET', key, unpack(fields))
call('DEL', P .. 'line_weights:' .. id)
bulk('HSET', P .. 'line_weights:' .. id, weights)
call('SADD', P .. 'lane_queues', queue)
safe_write('ZADD', P .. 'lines:' .. queue, 0, name)
has_any_lanes = true
for _, other in ipairs(name == '' and lanes().lines_of(queue) or {name}) do
  local first = lanes().next_at(lanes().line(queue, other))
  if first then
    wake_at(math.max(first, now))
  end
end
flush_effects()
return 1
