"""Fire times of schedules, and which of them are due: pure functions of (definition, now). No I/O, no clock, no store.

cron.py         parses and checks an expression              local_day.py  a day of a time zone, as UTC
calendar.py     fire times of an expression in a time zone   interval.py   fire times of a grid
rules.py        a definition's rule, whatever its kind       planner.py    (schedule, now) -> what to fire, what to skip
preview.py      the next fire times                          description.py  a rule in words
"""
