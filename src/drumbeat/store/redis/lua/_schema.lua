-- The version of the stored data. Written when a store is opened, and again when an instance registers after the database was
-- flushed.
local function ensure_meta(prefix, version, oldest_code, store)
  if redis.call('HEXISTS', prefix .. 'meta', 'version') == 0 then
    redis.call('HSET', prefix .. 'meta', 'version', version, 'oldest_code', oldest_code, 'store', store)
  end
end
