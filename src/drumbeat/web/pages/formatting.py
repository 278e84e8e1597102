"""Numbers and times as text; static/format.js formats them the same way. Pure, free of HTML."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from urllib.parse import quote

from drumbeat.durations import format_utc, to_iso

_UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))
# Possessive, and an unterminated string extends to the end: no backtracking.
_TOKEN = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)|[{}\[\],:]|[^\s{}\[\],:"]++', re.DOTALL)
MAX_PRETTY = 20_000
"""Characters; a longer text is shown unformatted, because formatting blocks the loop."""
NONE = "–"


def count(n: float | None) -> str:
    """1,234,567."""
    return NONE if n is None else f"{round(n):,}"


def ms(n: float | None) -> str:
    """Milliseconds, with as many digits as matter."""
    if n is None:
        return NONE
    if n < 1:
        return f"{n:.2f} ms"
    return f"{n:.1f} ms" if n < 10 else f"{round(n)} ms" if n < 1_000 else f"{n / 1_000:.1f} s"


def rate(n: float | None) -> str:
    if n is None:
        return NONE
    return "0/s" if n == 0 else f"{n:.1f}/s" if n < 10 else f"{count(n)}/s"


def percent(share: float | None) -> str:
    """Never 0 % where there is something, never 100 % where something is missing."""
    if share is None:
        return NONE
    if 0 < share < 0.001:
        return "<0.1 %"
    if 0.999 < share < 1:
        return ">99.9 %"
    return f"{share * 100:.1f} %" if 0 < share < 1 else f"{share * 100:.0f} %"


def span(seconds: float | None) -> str:
    """A duration in at most two units: 830 ms, 4.2 s, 48 s, 3 min, 2 h 5 min, 4 d 3 h."""
    if seconds is None:
        return NONE
    size = abs(seconds)
    if size < 1:
        return f"{round(size * 1_000)} ms"
    if size < 10:
        return f"{size:.1f} s"
    for place, (unit, word) in enumerate(_UNITS):
        if size >= unit:
            whole = int(size // unit)
            if place < 2 and (rest := int((size - whole * unit) // _UNITS[place + 1][0])):
                return f"{whole} {word} {rest} {_UNITS[place + 1][1]}"
            return f"{whole} {word}"
    return f"{round(size)} s"


def between(start: datetime | None, end: datetime | None) -> str:
    return NONE if start is None or end is None else span((end - start).total_seconds())


def ago(moment: datetime | None, now: datetime) -> str:
    """3 s ago, in 2 h 5 min, now."""
    if moment is None:
        return NONE
    seconds = (now - moment).total_seconds()
    if abs(seconds) < 1:
        return "now"
    text = f"{int(abs(seconds))} s" if abs(seconds) < 60 else span(seconds)
    return f"{text} ago" if seconds > 0 else f"in {text}"


def iso(moment: datetime) -> str:
    """For <time datetime> and URLs: UTC, to the millisecond."""
    return to_iso(moment, milliseconds=True)


def change(now: float | None, before: float | None) -> str:
    """A figure against its past: +35 %, −20 %, ×4, = ; empty where one is missing."""
    if now is None or not before:
        return ""
    ratio = now / before
    if ratio >= 3:
        return f"×{ratio:.0f}"
    per_cent = round((ratio - 1) * 100)
    return "=" if per_cent == 0 else f"{'+' if per_cent > 0 else '−'}{abs(per_cent)} %"


def field_time(moment: datetime) -> str:
    """The value of an input of type datetime-local, in UTC."""
    return f"{moment.astimezone(UTC):%Y-%m-%dT%H:%M:%S}"


def exact(moment: datetime | None) -> str:
    """2026-11-15 14:03:07.123 UTC."""
    return NONE if moment is None else format_utc(moment, milliseconds=True)


def clock(moment: datetime) -> str:
    """14:03:07."""
    return f"{moment.astimezone(UTC):%H:%M:%S}"


def short_id(id: str) -> str:
    """The end of an id: ids created together have equal beginnings."""
    return f"…{id[-10:]}" if len(id) > 12 else id


def quote_segment(name: str) -> str:
    """A name quoted as one segment of a path."""
    return quote(name, safe="")


def first_line(text: str, max_length: int = 200) -> str:
    lines = text.strip().splitlines()
    line = lines[0] if lines else ""
    return line if len(line) <= max_length else line[: max_length - 1] + "…"


def sentence(text: str) -> str:
    """With a capital first letter."""
    return text[:1].upper() + text[1:]


def format_json(text: str | None) -> str:
    """Indented JSON text. Only white space is changed: 2^53 + 1, 1.10 and repeated keys stay as stored."""
    if text is None or len(text) > MAX_PRETTY:
        return text or ""
    made: list[str] = []
    depth = 0
    tokens = _TOKEN.findall(text)
    for token, following in zip(tokens, [*tokens[1:], ""], strict=False):
        if token in ("}", "]"):
            depth -= 1
        made.append(token)
        if token == ":":
            made.append(" ")
        elif token in ("{", "["):
            depth += 1
            if following not in ("}", "]"):
                made.append("\n" + "  " * depth)
            continue
        if token == ",":
            made.append("\n" + "  " * depth)
        elif following in ("}", "]"):
            made.append("\n" + "  " * (depth - 1))
    return "".join(made)


FILTERS = {
    "count": count,
    "ms": ms,
    "rate": rate,
    "percent": percent,
    "span": span,
    "ago": ago,
    "iso": iso,
    "exact": exact,
    "change": change,
    "field_time": field_time,
    "clock": clock,
    "short_id": short_id,
    "part": quote_segment,
    "first_line": first_line,
    "sentence": sentence,
    "pretty": format_json,
}
