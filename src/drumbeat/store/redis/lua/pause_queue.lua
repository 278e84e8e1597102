-- Pauses a queue, if it is not paused already.
-- KEYS: 1 the prefix
-- ARGV: 1 queue, 2 by and reason, as the rest of a JSON array
-- returns: nothing
-- flags: allow-oom
-- include: _base

call('HSETNX', P .. 'paused', ARGV[1], '[' .. now_text .. ',' .. ARGV[2])
