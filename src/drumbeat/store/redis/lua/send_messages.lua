-- Adds messages to inboxes and notifies their owners.
-- KEYS: 1 the prefix
-- ARGV: 1 the hint, then of each message the instance and its text (see rooms.py)
-- returns: nothing
-- include: _prelude
for i = 2, #ARGV, 2 do
  safe_write('RPUSH', P .. 'inbox:' .. ARGV[i], now_text .. '\n' .. ARGV[i + 1])
  call('SADD', P .. 'inboxes', ARGV[i])
end
call('PUBLISH', P .. 'rooms', ARGV[1])
