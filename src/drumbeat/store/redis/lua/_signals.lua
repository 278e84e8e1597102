-- Signals of jobs: the hash signals:<id>, id of a signal -> lines of sent_at, read_by (or empty), name and payload.
-- include: _base

-- Returns the oldest unread signal of a name, as a table with id, sent_at and payload, or nil; and how many of all names are unread.
local function oldest_unread(job, name)
  local oldest, unread = nil, 0
  local flat = safe_read('HGETALL', P .. 'signals:' .. job) or {}
  for i = 1, #flat, 2 do
    local sent_at, its_name, payload = match(flat[i + 1], '^(%d+)\n\n([^\n]*)\n(.*)$')
    if sent_at then
      unread = unread + 1
      local moment = tonumber(sent_at)
      if its_name == name and (not oldest or moment < oldest.moment) then
        oldest = {id = flat[i], sent_at = sent_at, moment = moment, payload = payload}
      end
    end
  end
  return oldest, unread
end
