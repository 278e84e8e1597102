"""Layout of the timeline's lanes, and of the strip of a schedule's last runs.

Pure: microseconds in, percentages of the width out; templates draw them. A bar has a minimum width, bars that would overlap are
merged, and merged ones are counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import timedelta, tzinfo
from math import log1p

import msgspec

from drumbeat.durations import from_us

MINUTE, HOUR, DAY = 60_000_000, 3_600_000_000, 86_400_000_000
RANGES = {
    "15m": 15 * MINUTE,
    "1h": HOUR,
    "6h": 6 * HOUR,
    "24h": DAY,
    "7d": 7 * DAY,
}
"""Values of `range`, in microseconds."""
FUTURE_SHARE = 0.15
"""The part of the window after now."""
MIN_WIDTH = 0.3
"""Per cent: about three pixels on a laptop."""
_STEPS = (10_000_000, 30_000_000, MINUTE, 2 * MINUTE, 5 * MINUTE, 10 * MINUTE, 30 * MINUTE)
_LONG_STEPS = (HOUR, 2 * HOUR, 3 * HOUR, 6 * HOUR, 12 * HOUR, DAY, 2 * DAY, 7 * DAY)
_MAX_TICKS = 9
_PAINT_ORDER = (
    "unread",
    "upcoming",
    "skipped",
    "succeeded",
    "cancelled",
    "waiting",
    "running",
    "failed",
    "missed",
    "dead",
)


class TimeWindow(msgspec.Struct, frozen=True, kw_only=True):
    """The shown interval; `now` may lie outside."""

    first: int
    last: int
    now: int

    def x(self, at: int) -> float:
        """The position of a time, in per cent, clamped to the window."""
        share = (at - self.first) / (self.last - self.first)
        return round(min(1.0, max(0.0, share)) * 100, 3)

    def has(self, first: int, last: int) -> bool:
        """Whether this interval overlaps the window."""
        return last >= self.first and first <= self.last

    @property
    def length(self) -> int:
        return self.last - self.first


class AxisTick(msgspec.Struct, frozen=True, kw_only=True):
    """A grid line with its label."""

    x: float
    label: str


class TimelineMark(msgspec.Struct, frozen=True, kw_only=True):
    """What is drawn of runs or fires."""

    kind: str
    """succeeded, failed, dead, cancelled, running, waiting, missed, skipped or future: a class of the style sheet."""
    title: str
    href: str = ""
    count: int = 1


class TimelineItem(TimelineMark, frozen=True, kw_only=True):
    """Before layout."""

    first: int
    last: int


class TimelineBar(TimelineMark, frozen=True, kw_only=True):
    """Laid out in a lane, in per cent."""

    x: float
    width: float


class Lane(msgspec.Struct, frozen=True, kw_only=True):
    """A row of the timeline."""

    name: str
    href: str
    note: str
    bars: tuple[TimelineBar, ...]
    hidden: int = 0
    """Items merged into others."""


class StripMark(TimelineBar, frozen=True, kw_only=True):
    """One run in a strip; its height is its duration."""

    y: float
    height: float


def window_of(range: str, now: int, until: int | None = None) -> TimeWindow:
    """The window of a range that ends at `until`; None: a little after now, to show upcoming fires."""
    length = RANGES[range]
    if until is None:
        return TimeWindow(first=now - length, last=now + int(length * FUTURE_SHARE / (1 - FUTURE_SHARE)), now=now)
    return TimeWindow(first=until - length, last=until, now=now)


def shift_window(span: TimeWindow, range: str, way: int) -> int | None:
    """The `until` of the window half a range earlier (-1) or later (1); None: the current one."""
    until = min(span.last, span.now) + way * RANGES[range] // 2
    return None if until >= span.now else until


def axis_ticks(span: TimeWindow, tz: tzinfo) -> list[AxisTick]:
    """Grid lines at round times of the zone."""
    step = next((step for step in (*_STEPS, *_LONG_STEPS) if span.length / step <= _MAX_TICKS), _LONG_STEPS[-1])
    form = "%H:%M:%S" if step < MINUTE else "%H:%M" if step < DAY else "%a %d"
    found: list[AxisTick] = []
    at = _align(span.first, step, tz)
    while at <= span.last:
        local = from_us(at).astimezone(tz)
        is_midnight = (local.hour, local.minute, local.second) == (0, 0, 0)
        label = f"{local:%a %d}" if is_midnight else f"{local:{form}}"
        found.append(AxisTick(x=span.x(at), label=label))
        at += step
    return found


def _align(first: int, step: int, tz: tzinfo) -> int:
    """The first round time of the zone: its 00:00 is a tick."""
    local = from_us(first).astimezone(tz)
    offset = (local.utcoffset() or timedelta()) // timedelta(microseconds=1)
    return -(-(first + offset) // step) * step - offset


def layout_bars(pieces: Iterable[TimelineItem], span: TimeWindow) -> tuple[tuple[TimelineBar, ...], int]:
    """The bars of a lane, the most important last, so that they are on top; and the number of merged items.

    Items of one kind on the same three pixels are merged into one bar: a schedule that runs each second has not 3,600 links.
    """
    shown = sorted((piece for piece in pieces if span.has(piece.first, piece.last)), key=lambda piece: piece.first)
    found: list[TimelineBar] = []
    places: dict[str, int] = {}
    hidden = 0
    for piece in shown:
        x, end = span.x(piece.first), span.x(piece.last)
        width = max(MIN_WIDTH, end - x)
        x = min(x, 100 - width)
        place = places.get(piece.kind)
        if place is not None and x < found[place].x + found[place].width and end - x < MIN_WIDTH:
            found[place] = _merge(found[place], piece)
            hidden += piece.count
            continue
        places[piece.kind] = len(found)
        bar = TimelineBar(
            x=x, width=round(width, 3), kind=piece.kind, title=piece.title, href=piece.href, count=piece.count
        )
        found.append(bar)
    return tuple(sorted(found, key=lambda bar: _PAINT_ORDER.index(bar.kind) if bar.kind in _PAINT_ORDER else 0)), hidden


def _merge(bar: TimelineBar, piece: TimelineItem) -> TimelineBar:
    """Keeps the width, or a chain of neighbours would fill the lane."""
    count = bar.count + piece.count
    title = f"{count} {piece.kind}, close together; the last: {piece.title}"
    return msgspec.structs.replace(bar, title=title, href=piece.href or bar.href, count=count)


def layout_strip(pieces: Sequence[TimelineItem], slots: int = 60) -> tuple[StripMark, ...]:
    """The last `slots` items, the newest at the right edge. Height is the logarithm of the duration."""
    last = sorted(pieces, key=lambda piece: piece.first)[-slots:]
    width = 100 / slots
    longest = max((piece.last - piece.first for piece in last), default=0)
    found: list[StripMark] = []
    for place, piece in enumerate(last, start=slots - len(last)):
        height = (
            _height(piece.last - piece.first, longest) if piece.kind not in ("missed", "skipped", "upcoming") else 1.0
        )
        found.append(
            StripMark(
                x=round(place * width, 3),
                width=round(width * 0.76, 3),
                y=round(100 * (1 - height), 1),
                height=round(100 * height, 1),
                kind=piece.kind,
                title=piece.title,
                href=piece.href,
            )
        )
    return tuple(found)


def _height(took: int, longest: int) -> float:
    """From 0.3, so that the shortest is visible, to 1."""
    return 0.3 + 0.7 * (log1p(took / 1_000) / log1p(longest / 1_000)) if longest > 0 else 0.6
