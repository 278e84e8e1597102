-- The store's description of itself. It is made when a store is opened, and again when an instance registers after somebody has
-- flushed the database.
local function ensure_meta(prefix, version, oldest_code, store)
  if redis.call('HEXISTS', prefix .. 'meta', 'version') == 0 then
    redis.call('HSET', prefix .. 'meta', 'version', version, 'oldest_code', oldest_code, 'store', store)
  end
end
