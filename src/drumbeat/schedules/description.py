"""A rule in words: `every day at 03:00 Europe/Berlin`, `every 5 minutes`, `3 seconds after each run ends`.

Pure, and as exact as the rule: two rules that have other moments have other words. What cannot be read (the store may hold
anything) is shown as it is; nothing here is refused. How rules are read is the business of `cron.py` and `interval.py`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from drumbeat.core.schedule import NewSchedule, RuleKind
from drumbeat.errors import ConfigError

from .interval import try_parse_us
from .rules import describe_rule

if TYPE_CHECKING:
    from .cron import Cron

_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_MONTHS = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)
_NTH = {1: "first", 2: "second", 3: "third", 4: "fourth", 5: "fifth"}
_UNITS = ((86_400_000_000, "day"), (3_600_000_000, "hour"), (60_000_000, "minute"), (1_000_000, "second"))
_LAST, _LAST_WEEKDAY = -1000, -1001
_MAX_LISTED_TIMES = 4
"""So many times of day are listed before anything shorter is looked for."""


def describe_schedule(definition: NewSchedule) -> str:
    """The rule of a definition for people; whatever the store has."""
    if definition.kind is RuleKind.CRON:
        from .cron import parse  # here, as in rules.py: most programs have no cron expression

        try:
            return describe_cron(parse(definition.rule, definition.name), definition.tz)
        except ConfigError:
            return describe_rule(definition)
    length = try_parse_us(definition.rule)
    if length is None:
        return describe_rule(definition)
    if definition.kind is RuleKind.GRID:
        return f"every {describe_interval(length, one='')}"
    return f"{describe_interval(length)} after each run ends"


def describe_interval(us: int, one: str = "1 ") -> str:
    """`1 hour 30 minutes`, exactly; `one` is what stands before a single unit that is all of it (`every hour`)."""
    parts: list[str] = []
    rest = us
    for unit, name in _UNITS[:-1]:
        amount, rest = divmod(rest, unit)
        if amount:
            parts.append(f"{one if amount == 1 and not rest and not parts else f'{amount} '}{_pluralize(amount, name)}")
    if rest:
        text = f"{rest // 1_000_000}.{rest % 1_000_000:06}".rstrip("0").rstrip(".")
        parts.append(
            f"{one}second" if text == "1" and not parts else f"{text} {'second' if text == '1' else 'seconds'}"
        )
    return " ".join(parts) or "0 seconds"


def describe_cron(cron: Cron, tz: str) -> str:
    """A cron expression in words."""
    times, is_clock = _times(cron)
    days = _days(cron)
    if is_clock:
        return f"{days or 'every day'} {times} {tz}"
    text = f"{times}, {days}" if days else times
    # Where every hour of every day is alike, UTC says nothing that anybody would ask.
    return text if tz == "UTC" and not days and len(cron.hours) == 24 else f"{text}, {tz} time"


def _times(cron: Cron) -> tuple[str, bool]:
    """The moments of a day; True: they are times of day, so a day must be said with them."""
    seconds, minutes, hours = cron.seconds, cron.minutes, cron.hours
    if len(seconds) > 1:
        return _by_seconds(seconds, minutes, hours), False
    second = f":{seconds[0]:02}" if seconds[0] else ""
    if len(hours) < 24 and (len(minutes) * len(hours) <= _MAX_LISTED_TIMES or _is_odd_list(minutes, hours)):
        return "at " + _join_words([f"{hour:02}:{minute:02}{second}" for hour in hours for minute in minutes]), True
    if len(minutes) == 1:
        return _by_hours(hours, f"{minutes[0]:02}{second}"), False
    step = _step(minutes, 60)
    at_second = f" at second {seconds[0]}" if seconds[0] else ""
    if step is None:
        return f"at {_join_words([f':{minute:02}' for minute in minutes])} of {_hours(hours)}{at_second}", False
    every = ("every minute" if step == 1 else f"every {step} minutes") + at_second
    if len(hours) < 24 and hours[-1] - hours[0] == len(hours) - 1:
        return f"{every} from {hours[0]:02}:{minutes[0]:02} to {hours[-1]:02}:{minutes[-1]:02}", False
    from_minute = f" from :{minutes[0]:02}" if minutes[0] else ""
    return every + from_minute + ("" if len(hours) == 24 else f" in {_hours(hours)}"), False


def _is_odd_list(minutes: Sequence[int], hours: Sequence[int]) -> bool:
    """One minute of hours that have no shorter description than their list."""
    return len(minutes) == 1 and not _is_run(hours) and _step(hours, 24) is None


def _by_hours(hours: Sequence[int], minute: str) -> str:
    if _is_run(hours):
        return f"every hour from {hours[0]:02}:{minute} to {hours[-1]:02}:{minute}"
    step = _step(hours, 24)
    every = "every hour" if step == 1 else f"every {step} hours"
    if hours[0]:
        return f"{every} from {hours[0]:02}:{minute}"
    return every if minute == "00" else f"{every} at :{minute}"


def _by_seconds(seconds: Sequence[int], minutes: Sequence[int], hours: Sequence[int]) -> str:
    step = _step(seconds, 60)
    if step is None:
        text = f"at seconds {_join_words([str(second) for second in seconds])}"
    else:
        text = "every second" if step == 1 else f"every {step} seconds"
        text += f" from second {seconds[0]}" if seconds[0] else ""
    if len(minutes) < 60:
        inner = _step(minutes, 60)
        if inner is None or len(minutes) <= _MAX_LISTED_TIMES:
            text += f" of the minutes {_join_words([f':{minute:02}' for minute in minutes])}"
        else:
            text += f" of every {_ordinal(inner)} minute" + (f" from :{minutes[0]:02}" if minutes[0] else "")
    return text if len(hours) == 24 else f"{text} in {_hours(hours)}"


def _hours(hours: Sequence[int]) -> str:
    if len(hours) == 24:
        return "every hour"
    if _is_run(hours):
        return f"the hours {hours[0]} to {hours[-1]}"
    return ("the hour " if len(hours) == 1 else "the hours ") + _join_words([str(hour) for hour in hours])


def _days(cron: Cron) -> str:
    """Which days, and nothing where it is every day."""
    is_any_date = set(range(1, 32)) <= cron.days
    is_any_weekday = len(_plain_weekdays(cron)) == 7
    if not cron.needs_both_days and (is_any_date or is_any_weekday):
        is_any_date = is_any_weekday = True
    if is_any_date and is_any_weekday:
        return "" if len(cron.months) == 12 else f"every day {_in_months(cron)}"
    if is_any_date:
        return _on_weekdays(cron)
    if is_any_weekday:
        return f"on {_dates(cron)} {_of_months(cron)}"
    if cron.needs_both_days:
        return f"on {_dates(cron)} {_of_months(cron)}, if that is {_weekday_list(cron, 'a ', 'or')},"
    return f"on {_dates(cron)} {_of_months(cron)} and also {_on_weekdays(cron)}"


def _plain_weekdays(cron: Cron) -> list[int]:
    """From 0, Monday; without those that are counted within the month."""
    return sorted({(day + 6) % 7 for day in cron.weekdays if isinstance(day, int)})


def _on_weekdays(cron: Cron) -> str:
    if any(isinstance(day, tuple) for day in cron.weekdays):
        return f"on {_weekday_list(cron, 'every ', 'and')} {_of_months(cron)}"
    text = _weekday_list(cron, "every " if len(_plain_weekdays(cron)) == 1 else "", "and")
    return text if len(cron.months) == 12 else f"{text} {_in_months(cron)}"


def _weekday_list(cron: Cron, article: str, last: str) -> str:
    plain = _plain_weekdays(cron)
    ranked = sorted({((day[0] + 6) % 7, day[1]) for day in cron.weekdays if isinstance(day, tuple)})
    if _is_run(plain) and not ranked:
        return f"{_DAYS[plain[0]]} to {_DAYS[plain[-1]]}"
    named = [f"{article}{_DAYS[day]}" for day in plain]
    named += [f"the {'last' if nth == _LAST else _NTH[nth]} {_DAYS[day]}" for day, nth in ranked]
    return _join_words(named, last)


def _dates(cron: Cron) -> str:
    plain = sorted(day for day in cron.days if day > 0)
    ends = [text for mark, text in ((_LAST, "the last day"), (_LAST_WEEKDAY, "the last weekday")) if mark in cron.days]
    step = _progression(plain, 31)
    if step is not None and len(plain) > _MAX_LISTED_TIMES:
        return _join_words([f"every {_ordinal(step)} day from the {_ordinal(plain[0])}", *ends])
    if _is_run(plain):
        return _join_words([f"the {_ordinal(plain[0])} to the {_ordinal(plain[-1])}", *ends])
    return _join_words([f"the {_ordinal(day)}" for day in plain] + ends)


def _of_months(cron: Cron) -> str:
    return "of each month" if len(cron.months) == 12 else f"of {_month_list(cron.months)}"


def _in_months(cron: Cron) -> str:
    return f"in {_month_list(cron.months)}"


def _month_list(months: Collection[int]) -> str:
    ordered = sorted(months)
    if _is_run(ordered):
        return f"{_MONTHS[ordered[0] - 1]} to {_MONTHS[ordered[-1] - 1]}"
    return _join_words([_MONTHS[month - 1] for month in ordered])


def _is_run(values: Sequence[int]) -> bool:
    """Three or more in a row, and not all hours of a day."""
    return 3 <= len(values) < 24 and values[-1] - values[0] == len(values) - 1


def _step(values: Sequence[int], size: int) -> int | None:
    """The distance, if they go round the clock evenly: their number and the distance fill it."""
    if len(values) < 2:
        return None
    step = values[1] - values[0]
    return step if size % step == 0 and list(values) == list(range(values[0] % step, size, step)) else None


def _progression(values: Sequence[int], highest: int) -> int | None:
    """The distance, if they go on evenly to the end of the month."""
    if len(values) < 2 or values[1] - values[0] == 1:
        return None
    step = values[1] - values[0]
    return step if list(values) == list(range(values[0], highest + 1, step)) else None


def _ordinal(number: int) -> str:
    if number % 100 in (11, 12, 13):
        return f"{number}th"
    return f"{number}{ {1: 'st', 2: 'nd', 3: 'rd'}.get(number % 10, 'th') }"


def _join_words(parts: Sequence[str], last: str = "and") -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} {last} {parts[-1]}"


def _pluralize(amount: int, name: str) -> str:
    return name if amount == 1 else f"{name}s"
