-- Asks an act that reports its progress to stop.
-- KEYS: 1 the prefix
-- ARGV: 1 id, 2 by whom
-- returns: 1, or 0 if it has ended, reports no progress, or is unknown
-- flags: allow-oom
-- include: _prelude
if not call('ZSCORE', P .. 'audit_unended', ARGV[1]) then
  return 0
end
call('HSETNX', P .. 'act:' .. ARGV[1], 'stopped_by', ARGV[2])
return 1
