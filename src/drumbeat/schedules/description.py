"""Schedules in words: `at 03:00 every day (Europe/Berlin)`, `every 5 minutes`, `3 seconds after each run ends`.

As exact as the rule: two rules with different fire times have different descriptions. A rule that cannot be parsed (the store
may hold anything) is shown as it is. Cron expressions are described by cronsim, `H` by the values that it stands for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from drumbeat.core.schedule import NewSchedule, RuleKind
from drumbeat.errors import ConfigError

from .interval import try_parse_us
from .rules import describe_rule

if TYPE_CHECKING:
    from .cron import Cron

_UNITS = ((86_400_000_000, "day"), (3_600_000_000, "hour"), (60_000_000, "minute"), (1_000_000, "second"))


def describe_schedule(definition: NewSchedule) -> str:
    """The rule of a definition in words, whatever the store holds."""
    if definition.kind is RuleKind.CRON:
        from .cron import parse  # imported late, as in rules.py: most programs have no cron expression

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


def describe_cron(cron: Cron, tz: str) -> str:
    """A cron expression in words, with its time zone unless it is UTC and every hour is alike."""
    text = cron.explain()
    text = text[0].lower() + text[1:]
    return text if tz == "UTC" and cron.is_alike_every_hour else f"{text} ({tz})"


def describe_interval(us: int, one: str = "1 ") -> str:
    """`1 hour 30 minutes`, exactly; `one` precedes a single unit that is the whole interval (`every hour`)."""
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


def _pluralize(amount: int, name: str) -> str:
    return name if amount == 1 else f"{name}s"
