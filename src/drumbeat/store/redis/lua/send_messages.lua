-- Adds messages to inboxes and notifies their owners.
-- KEYS: 1 the prefix
-- ARGV: 1 the hint, then of each message the instance and its text (see rooms.py)
-- returns: nothing
-- touches: inbox:<instance>, inboxes
local p, time = KEYS[1], redis.call('TIME')
local now = string.format('%.0f', time[1] * 1000000 + time[2])
for i = 2, #ARGV, 2 do
  local inbox, text = p .. 'inbox:' .. ARGV[i], now .. '\n' .. ARGV[i + 1]
  local answer = redis.pcall('RPUSH', inbox, text)
  if type(answer) == 'table' then
    -- Deletes a key of another type.
    if string.find(answer.err, 'WRONGTYPE', 1, true) then redis.call('DEL', inbox) end
    redis.call('RPUSH', inbox, text)
  end
  redis.call('SADD', p .. 'inboxes', ARGV[i])
end
redis.call('PUBLISH', p .. 'rooms', ARGV[1])
