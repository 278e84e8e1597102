"""Values as words for a terminal: escaped, cut, redacted; moments and lengths of time for people.

The content of the store is untrusted: whatever comes from it passes here before a person sees it. Pure, and without
rich, so that commands with --json need not load it.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec

from drumbeat import durations
from drumbeat.durations import MICROSECOND
from drumbeat.redaction import redact, redact_json

EMPTY = "-"
REDACTED = "[redacted]"


def escape(text: str) -> str:
    r"""The text with everything that is not printable (control, bidi, surrogates) written as \x1b or \u202e."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def truncate(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"


def format_value(value: object, limit: int = 60) -> str:
    """One value as one line."""
    if value is None or value == "":
        return EMPTY
    # Cut before escaping too: a value may have megabytes.
    return truncate(escape(str(value)[: limit + 1]), limit)


def to_one_line(text: str) -> str:
    """A message, whatever is in it, as one line."""
    return escape(" ".join(text.split()))


def format_arguments(args: str, limit: int = 60) -> str:
    """The arguments of a job as `name=value, ...`, with what looks like a secret redacted."""
    try:
        values = msgspec.json.decode(args)
    except msgspec.DecodeError:
        return format_value(redact_json(args, REDACTED), limit)
    if not isinstance(values, dict):
        return format_value(_to_json(redact(values, REDACTED)), limit)
    return format_value(
        ", ".join(f"{name}={_to_json(value)}" for name, value in redact(values, REDACTED).items()), limit
    )


def format_arguments_indented(args: str) -> str:
    """The arguments as indented JSON for one job's own page, redacted likewise."""
    try:
        values = msgspec.json.decode(args)
    except msgspec.DecodeError:
        return format_json(args)
    return escape_lines(msgspec.json.format(msgspec.json.encode(redact(values, REDACTED)), indent=2).decode())


def format_json(text: str) -> str:
    """JSON text as it is stored, redacted likewise."""
    return escape_lines(redact_json(text, REDACTED))


def escape_lines(text: str) -> str:
    """Text of several lines, each escaped."""
    return "\n".join(escape(line.expandtabs(4)) for line in text.split("\n"))


def _to_json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def format_ago(moment: datetime | None, now: datetime) -> str:
    """How far a moment is: `3m ago`, `in 2h`."""
    if moment is None:
        return EMPTY
    us = (now - moment) // MICROSECOND
    if abs(us) < 1_000_000:
        return "now"
    length = _format_whole_seconds(abs(us))
    return f"{length} ago" if us > 0 else f"in {length}"


def format_timestamp(moment: datetime | None, now: datetime) -> str:
    """A moment in UTC, with its date unless that is today's, and how far it is."""
    if moment is None:
        return EMPTY
    utc = moment.astimezone(UTC)
    shown = f"{utc:%H:%M:%S}" if utc.date() == now.astimezone(UTC).date() else f"{utc:%Y-%m-%d %H:%M}"
    return f"{shown} ({format_ago(moment, now)})"


def format_exact(moment: datetime | None, now: datetime) -> str:
    """A moment in UTC to the millisecond, and how far it is."""
    if moment is None:
        return EMPTY
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S.%f}"[:-3] + f"Z ({format_ago(moment, now)})"


def format_elapsed(start: datetime | None, end: datetime | None) -> str:
    if start is None or end is None:
        return EMPTY
    return durations.format_duration((end - start) // MICROSECOND)


def _format_whole_seconds(us: int) -> str:
    """Whole seconds are enough for how long ago something was."""
    return durations.format_duration(us // 1_000_000 * 1_000_000)


def format_count(number: int, one: str, many: str | None = None) -> str:
    """`1 job`, `1,200 jobs`."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"
