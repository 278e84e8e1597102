-- Follows edges of parents that have ended, a bounded number.
-- KEYS: 1 the prefix
-- ARGV: none
-- returns: 1 if there are more, else 0
-- flags: allow-oom
-- include: _dependencies

check_if_full()
local is_releasing = advance()
flush_effects()
return is_releasing
