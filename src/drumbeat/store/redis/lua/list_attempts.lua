-- Lists the attempts of a job.
-- KEYS: 1 the prefix
-- ARGV: 1 id
-- returns: the earlier ones, and its end record if it has ended
-- include: _base

return {safe_read('LRANGE', P .. 'attempts:' .. ARGV[1], 0, -1) or {}, safe_read('HGET', P .. 'ended:' .. bucket(ARGV[1]), ARGV[1])}
