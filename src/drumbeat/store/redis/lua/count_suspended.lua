-- Counts jobs that are suspended: those that sleep and those that wait for a signal. A page of what has a live state at a call.
-- KEYS: 1 the prefix
-- ARGV: 1 where to go on ('0' at first), 2 about how many to look at
-- returns: how many wait for parents (whatever the page), where to go on ('0' at the end), how many were looked at, then how many
-- wait for a signal, and sleep
-- include: _base

local signal, sleep, seen = 0, 0, {}
local page = call('HSCAN', P .. 'live_state', ARGV[1], 'COUNT', tonumber(ARGV[2]))
for i = 1, #page[2], 2 do
  local text = page[2][i + 1]
  local more = find(text, '\n[^\n]*\n[^\n]*\n') and not seen[page[2][i]] and parse_live_state(text)
  -- A scan may return one twice. A running job was due when it was claimed, so a job that is due later is pending.
  if more and more.suspended and more.suspended ~= '' and more.run_at > now then
    seen[page[2][i]] = true
    sleep, signal = sleep + (more.suspended == 'sleep' and 1 or 0), signal + (more.suspended ~= 'sleep' and 1 or 0)
  end
end
return {tonumber(safe_read('HGET', P .. 'blocked_on', 'parents') or 0) or 0, page[1], #page[2] / 2, signal, sleep}
