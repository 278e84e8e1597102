-- Moves dead letters to history, as dead.
-- KEYS: 1 the prefix
-- ARGV: ids
-- returns: how many there were
-- flags: allow-oom
-- include: _base

local moved = 0
for _, id in ipairs(ARGV) do
  if call('ZREM', P .. 'dead', id) == 1 then
    local done = safe_read('HGET', P .. 'ended:' .. bucket(id), id) or ''
    call('ZADD', P .. 'history', match(done, '^%[(%-?%d+)') or now_text, id)
    call('ZADD', P .. 'unsucceeded', 0, id)
    moved = moved + 1
  end
end
return moved
