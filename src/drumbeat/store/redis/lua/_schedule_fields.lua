-- Schedules as they are returned.
-- include: _schedule

-- Returns the fields of a schedule in the order of schedules.FIELDS; the first is false if there is no such schedule.
local function schedule_fields(name)
  return safe_read('HMGET', schedule_key(name), 'definition', 'state', 'revision', 'cursor', 'next_at', 'current', 'created_at',
    'changed_at', 'declared_at', 'by', 'reason') or {false}
end
