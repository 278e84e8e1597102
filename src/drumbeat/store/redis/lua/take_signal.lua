-- Gives a wait of a running job the oldest unread signal of its name, or ends it at its time-out.
-- KEYS: 1 the prefix
-- ARGV: 1 instance, 2 id, 3 token, 4 name of the wait, 5 name of the signal
-- returns: 1 if the claim is current, else 0; 1 if the wait has ended, else 0; its record (steps.py)
-- include: _signals

local id, key, field = ARGV[2], P .. 'steps:' .. ARGV[2], 'wait\0' .. ARGV[4]
local score = safe_read('ZSCORE', P .. 'held:' .. ARGV[1], id)
if not score or tonumber(score) ~= tonumber(ARGV[3]) then
  return {0, 0, ''}
end
local token, started, till, finished = match(safe_read('HGET', key, field) or '', '^%[(%d+),(%d+),(%w+),(%w+),')
if finished and finished ~= 'null' then
  return {1, 1, call('HGET', key, field)}
end
local signal = oldest_unread(id, ARGV[5])
if not signal and (tonumber(till) or math.huge) > now then
  return {1, 0, ''}
end
local record = '[' .. (token or ARGV[3]) .. ',' .. (started or now_text) .. ',' .. (till or 'null') .. ',' .. now_text .. ','
  .. cjson.encode(ARGV[5]) .. ',' .. (signal and cjson.encode(signal.payload) or 'null') .. ']'
safe_write('HSET', key, field, record)
if signal then
  call('HSET', P .. 'signals:' .. id, signal.id, signal.sent_at .. '\n' .. ARGV[4] .. '\n' .. ARGV[5] .. '\n' .. signal.payload)
end
return {1, 1, record}
