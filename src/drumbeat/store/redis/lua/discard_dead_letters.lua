-- Moves dead letters to history, as dead.
-- KEYS: 1 the prefix
-- ARGV: ids
-- returns: 1 if releases are left, else 0; how many there were
-- flags: allow-oom
-- include: _dependencies

check_if_full()
local moved = 0
for _, id in ipairs(ARGV) do
  if call('ZREM', P .. 'dead', id) == 1 then
    local done = safe_read('HGET', P .. 'ended:' .. bucket(id), id) or ''
    call('ZADD', P .. 'history', match(done, '^%[(%-?%d+)') or now_text, id)
    call('ZADD', P .. 'unsucceeded', 0, id)
    if safe_read('HEXISTS', P .. 'kid:' .. bucket(id), id) == 1 then
      links = true
      local life = tonumber(match(done, '\n%-?%d+,%d+,%d+,(%d+)')) or 0
      leave_release(id, 'discarded', life, match(safe_read('HGET', P .. 'job:' .. bucket(id), id) or '', TASK_PATTERN) or '')
    end
    moved = moved + 1
  end
end
local is_releasing = advance()
flush_effects()
return {is_releasing, moved}
