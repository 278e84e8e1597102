-- Releases tickets, waiting or holding.
-- KEYS: 1 the prefix
-- ARGV: tickets
-- returns: nothing
-- flags: allow-oom
-- include: _locks
local asked, lines = {}, {}
for _, id in ipairs(ARGV) do
  asked[id] = true
  local facts = call('HMGET', ticket_key(id), 'lock', 'lane')
  local name = facts[1]
  if name then
    lines[name] = lines[name] or lock_keys(name)
    remove_ticket(lines[name], id, facts[2])
  end
end
for _, keys in pairs(lines) do
  if call('ZCARD', keys.leases) > 0 then
    expire_tickets(keys)
    grant_next(keys, asked)
  end
end
