-- The version of the stored data. Written when a store is opened, and again when an instance registers after the database was
-- flushed.
-- include: _prelude
local function ensure_meta(version, oldest_code, store)
  if call('HEXISTS', P .. 'meta', 'version') == 0 then
    call('HSET', P .. 'meta', 'version', version, 'oldest_code', oldest_code, 'store', store)
  end
end
