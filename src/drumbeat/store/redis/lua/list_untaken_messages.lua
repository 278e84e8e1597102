-- Lists those of these messages that were not taken. Searched from the end of an inbox, as they came last.
-- KEYS: 1 the prefix
-- ARGV: 1 remove them (1 or 0), then of each message the instance and its id
-- returns: their ids
-- flags: allow-oom
-- touches: inbox:<instance>, inboxes
local p, removes, found = KEYS[1], ARGV[1] == '1', {}
for i = 2, #ARGV, 2 do
  local inbox, id = p .. 'inbox:' .. ARGV[i], ARGV[i + 1]
  for at = redis.call('LLEN', inbox) - 1, 0, -1 do
    local text = redis.call('LINDEX', inbox, at)
    if string.match(text, '^%d+\n([^\n]*)\n') == id then
      found[#found + 1] = id
      if removes then
        redis.call('LREM', inbox, -1, text)
        if redis.call('EXISTS', inbox) == 0 then
          redis.call('SREM', p .. 'inboxes', ARGV[i])
        end
      end
      break
    end
  end
end
return found
