-- Schedules as they are shown.
-- include: _scheduling

-- The fields of a schedule, in the order of schedules.FIELDS; the first is false if there is none.
local function shown(name)
  return ask('HMGET', plan_key(name), 'definition', 'state', 'revision', 'cursor', 'next_at', 'current', 'created_at',
    'changed_at', 'declared_at', 'by', 'why') or {false}
end
