-- The runs of a job.
-- KEYS: 1 the prefix
-- ARGV: 1 id
-- returns: the earlier ones, and how it ended, if it did
-- include: _base

return {safe_read('LRANGE', P .. 'tries:' .. ARGV[1], 0, -1) or {}, safe_read('HGET', P .. 'done:' .. bucket(ARGV[1]), ARGV[1])}
