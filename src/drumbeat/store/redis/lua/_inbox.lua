-- Inboxes of room messages: lists, and the set of those that are not empty.
-- include: _prelude

local function forget_empty_inbox(instance)
  if not exists('inbox:' .. instance) then
    call('SREM', P .. 'inboxes', instance)
  end
end
