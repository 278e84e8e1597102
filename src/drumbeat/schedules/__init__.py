"""Which moments a rule has, and which of them are due: pure functions of (definition, now). No I/O, no clock, no store.

cron.py      an expression, read and checked            localday.py   a day of a time zone, as UTC
calendar.py  the moments of an expression in a zone     interval.py   the moments of a grid
rules.py     a definition's rule, whatever its kind     planner.py    (schedule, now) -> what to fire, what to skip
preview.py   the next moments, for people
"""
