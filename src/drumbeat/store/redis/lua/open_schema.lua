-- Returns the version of the store, and initialises an empty one.
-- KEYS: 1 the prefix
-- ARGV: 1 version, 2 oldest_code, 3 a random id for a new store
-- returns: version, oldest_code, the store's id, as strings
-- include: _schema
ensure_meta(unpack(ARGV))
return call('HMGET', P .. 'meta', 'version', 'oldest_code', 'store')
