"""Values as text for a terminal: escaped, truncated, redacted; timestamps and durations for people.

The content of the store is untrusted: everything from it passes through here before it is shown. Pure, and without rich, so
that commands with --json need not load it.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec

from drumbeat import durations, redaction
from drumbeat.durations import MICROSECOND, SECOND_US
from drumbeat.redaction import redact, redact_json

if TYPE_CHECKING:
    from drumbeat.core.job import Failure

EMPTY = "-"


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
    # Truncated before escaping too: a value may have megabytes.
    return truncate(escape(str(value)[: limit + 1]), limit)


def format_number(value: int | None) -> str:
    return EMPTY if value is None else f"{value:,}"


def to_one_line(text: str) -> str:
    """A message as one line, escaped."""
    return escape(" ".join(text.split()))


def format_arguments(args: str, limit: int = 60) -> str:
    """The arguments of a job as `name=value, ...`, redacted."""
    try:
        values = msgspec.json.decode(args)
    except msgspec.DecodeError:
        return format_value(redact_json(args), limit)
    if not isinstance(values, dict):
        return format_value(_to_json(redact(values)), limit)
    return format_value(", ".join(f"{name}={_to_json(value)}" for name, value in redact(values).items()), limit)


def format_arguments_indented(args: str) -> str:
    """The arguments as indented JSON, redacted."""
    try:
        values = msgspec.json.decode(args)
    except msgspec.DecodeError:
        return format_json(args)
    return escape_lines(msgspec.json.format(msgspec.json.encode(redact(values)), indent=2).decode())


def format_json(text: str) -> str:
    """JSON text as it is stored, redacted."""
    return escape_lines(redact_json(text))


def escape_lines(text: str) -> str:
    """Text of several lines, each of them escaped."""
    return "\n".join(escape(line.expandtabs(4)) for line in text.split("\n"))


def _to_json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def format_ago(at: datetime | None, now: datetime) -> str:
    """How far a timestamp is from now: `3m ago`, `in 2h`."""
    return EMPTY if at is None else durations.format_ago(at, now)


def format_timestamp(at: datetime | None, now: datetime) -> str:
    """A timestamp in UTC, with its date unless that is today, and how far it is from now."""
    if at is None:
        return EMPTY
    utc = at.astimezone(UTC)
    shown = f"{utc:%H:%M:%S}" if utc.date() == now.astimezone(UTC).date() else f"{utc:%Y-%m-%d %H:%M}"
    return f"{shown} ({format_ago(at, now)})"


def format_exact(at: datetime | None, now: datetime) -> str:
    """A timestamp in UTC to the millisecond, and how far it is from now."""
    return EMPTY if at is None else f"{durations.format_utc(at, milliseconds=True)} ({format_ago(at, now)})"


def format_elapsed(start: datetime | None, end: datetime | None) -> str:
    return EMPTY if start is None or end is None else durations.format_length((end - start) // MICROSECOND)


def format_seconds(seconds: float | None) -> str:
    return EMPTY if seconds is None else durations.format_length(round(seconds * SECOND_US))


def format_error(error: Failure | None, limit: int = 60) -> str:
    """An error as one line, redacted."""
    return EMPTY if error is None else format_value(redaction.format_error(error, limit + 1), limit)
