-- Returns the leader.
-- KEYS: 1 the prefix
-- ARGV: none
-- returns: instance, term, since, until; nothing if there is none
-- include: _leader
return current_leader()
