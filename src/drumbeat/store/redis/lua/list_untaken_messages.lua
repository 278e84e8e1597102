-- Lists those of these messages that were not taken. Searched from the end of an inbox, as they came last.
-- KEYS: 1 the prefix
-- ARGV: 1 remove them (1 or 0), then of each message the instance and its id
-- returns: their ids
-- flags: allow-oom
-- include: _inbox
local found = {}
for i = 2, #ARGV, 2 do
  local inbox, id = P .. 'inbox:' .. ARGV[i], ARGV[i + 1]
  for at = call('LLEN', inbox) - 1, 0, -1 do
    local text = call('LINDEX', inbox, at)
    if match(text, '^%d+\n([^\n]*)\n') == id then
      append(found, id)
      if ARGV[1] == '1' then
        call('LREM', inbox, -1, text)
        forget_empty_inbox(ARGV[i])
      end
      break
    end
  end
end
return found
