"""Layout of the charts: roll-ups become slots of one interval each, with bars by outcome or points of percentiles.

Pure: templates draw them in a view box of 100 by 100. A slot links to the jobs that ended in its interval.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from math import ceil, floor, log10
from typing import Literal

import msgspec

from drumbeat.core.stats import Rollup
from drumbeat.durations import from_us, to_us

from .formatting import clock, count, span
from .percentiles import percentiles

SlotLink = Callable[[int, int, str | None], str]
"""The URL of the jobs that ended in [at, until) in microseconds, of one state or all."""
OUTCOMES = ("succeeded", "cancelled", "failed", "crashed", "dead")
"""From the bottom to the top of a bar: what needs attention is on top."""
SHARES = ("p50", "p95", "p99")
SECOND = 1_000_000
_GAP = 0.18
"""Of a slot's width, between two bars."""


class ChartRange(msgspec.Struct, frozen=True, kw_only=True):
    """The length and resolution of a chart."""

    resolution: Literal["10s", "1m", "1h"]
    interval_us: int
    """µs of one slot, a multiple of the resolution."""
    slots: int
    labels: int = 5
    """Number of time labels."""

    @property
    def length(self) -> int:
        return self.interval_us * self.slots

    def first(self, now: int) -> int:
        """The beginning of the first slot; the last one contains now."""
        return (now // self.interval_us + 1 - self.slots) * self.interval_us


RANGES = {
    "15m": ChartRange(resolution="10s", interval_us=10 * SECOND, slots=90, labels=4),
    "1h": ChartRange(resolution="1m", interval_us=60 * SECOND, slots=60),
    "6h": ChartRange(resolution="1m", interval_us=300 * SECOND, slots=72, labels=7),
    "24h": ChartRange(resolution="1m", interval_us=1_200 * SECOND, slots=72),
}


class Segment(msgspec.Struct, frozen=True, kw_only=True):
    """A part of a bar."""

    kind: str
    y: float
    height: float
    href: str


class Slot(msgspec.Struct, frozen=True, kw_only=True):
    """One interval."""

    x: float
    width: float
    tip: str
    href: str
    segments: tuple[Segment, ...] = ()


class Chart(msgspec.Struct, frozen=True, kw_only=True):
    """A chart in a view box of 100 by 100, and its texts."""

    words: str
    """A summary, for screen readers."""
    slots: list[Slot]
    bar_x: float
    bar_width: float
    """Of a bar within its slot."""
    lines: dict[str, str] = {}
    """SVG paths by percentile."""
    y_labels: list[str]
    """From the top down, at equal distances."""
    x_labels: list[str]
    is_empty: bool


def group_by_slot(rollups: Iterable[Rollup], over: ChartRange, first: int) -> list[list[Rollup]]:
    """The roll-ups of each slot; those outside are left out."""
    slots: list[list[Rollup]] = [[] for _ in range(over.slots)]
    for rollup in rollups:
        place = (rollup.at - first) // over.interval_us
        if 0 <= place < over.slots:
            slots[place].append(rollup)
    return slots


def throughput(rollups: Sequence[Rollup], over: ChartRange, now: datetime, link: SlotLink) -> Chart:
    """Ended runs of each interval, by outcome."""
    first = over.first(to_us(now))
    numbers = [outcomes_of(some) for some in group_by_slot(rollups, over, first)]
    top = round_up_scale(max((sum(each.values()) for each in numbers), default=0))
    width = 100 / over.slots
    slots = [
        _bar(place * width, width, each, top, first + place * over.interval_us, over, link)
        for place, each in enumerate(numbers)
    ]
    ended = {kind: sum(each[kind] for each in numbers) for kind in OUTCOMES}
    return Chart(
        words=_describe(ended),
        slots=slots,
        bar_x=width * _GAP / 2,
        bar_width=width * (1 - _GAP),
        y_labels=[count(top), count(top / 2) if top > 1 else "", "0"],
        x_labels=x_labels(over, first),
        is_empty=not any(ended.values()),
    )


def _bar(x: float, width: float, ended: dict[str, int], top: int, at: int, over: ChartRange, link: SlotLink) -> Slot:
    until, y, segments = at + over.interval_us, 100.0, list[Segment]()
    for kind in OUTCOMES:
        if number := ended[kind]:
            # A minimum height: one dead letter among thousands must be visible.
            height = max(number / top * 100, 1.5)
            y = max(0.0, y - height)
            # A run that failed or crashed leaves its job in any state.
            state = None if kind in ("failed", "crashed") else kind
            segments.append(Segment(kind=kind, y=round(y, 3), height=round(height, 3), href=link(at, until, state)))
    lines = [f"{clock(from_us(at))} – {clock(from_us(until))} UTC"]
    lines += [f"{count(number)} {kind}" for kind in reversed(OUTCOMES) if (number := ended[kind])] or ["nothing ended"]
    return Slot(
        x=round(x, 4), width=round(width, 4), tip="\n".join(lines), href=link(at, until, None), segments=tuple(segments)
    )


def outcomes_of(rollups: Iterable[Rollup]) -> dict[str, int]:
    """Ended runs by outcome. A run that made its job dead counts as dead only."""
    sums = dict.fromkeys(OUTCOMES, 0)
    for each in rollups:
        sums["succeeded"] += each.succeeded
        sums["cancelled"] += each.cancelled
        sums["dead"] += each.dead
        sums["crashed"] += each.crashed
        sums["failed"] += max(0, each.failed - each.dead)
    return sums


def latency(
    kind: Literal["wait", "run"], rollups: Sequence[Rollup], over: ChartRange, now: datetime, link: SlotLink
) -> Chart:
    """Percentiles of wait or run times of each interval, on a logarithmic scale."""
    first = over.first(to_us(now))
    found = [percentiles(getattr(each, kind) for each in some) for some in group_by_slot(rollups, over, first)]
    values = [value for each in found for name in SHARES if (value := getattr(each, name)) is not None]
    low, high = decades(values)
    width = 100 / over.slots
    slots = []
    for place, each in enumerate(found):
        at = first + place * over.interval_us
        lines = [f"{clock(from_us(at))} – {clock(from_us(at + over.interval_us))} UTC"]
        if each.count:
            lines += [f"{name} {span(getattr(each, name))}" for name in SHARES] + [f"of {count(each.count)} runs"]
        else:
            lines.append("no runs")
        href = link(at, at + over.interval_us, None)
        slots.append(Slot(x=round(place * width, 4), width=round(width, 4), tip="\n".join(lines), href=href))
    whole = percentiles(getattr(each, kind) for each in rollups)
    word = {"wait": "Waiting", "run": "Running"}[kind]
    return Chart(
        words=f"{word}: p50 {span(whole.p50)}, p95 {span(whole.p95)}, p99 {span(whole.p99)}",
        slots=slots,
        bar_x=0,
        bar_width=width,
        lines={name: svg_path([getattr(each, name) for each in found], width, low, high) for name in SHARES},
        y_labels=[_power(power) for power in range(high, low - 1, -1)],
        x_labels=x_labels(over, first),
        is_empty=not values,
    )


def svg_path(values: Sequence[float | None], width: float, low: int, high: int) -> str:
    """An SVG path through the middle of each slot that has a value; where one has none, the line is broken."""
    parts: list[str] = []
    previous = None
    for place, value in enumerate(values):
        if value is not None:
            x, y = (place + 0.5) * width, 100 * (high - log10(max(value, 10.0**low))) / (high - low)
            # A short stub first, so that a single slot between empty ones is visible.
            parts.append(
                f"L{x:.2f} {y:.2f}" if previous is not None else f"M{x - width / 4:.2f} {y:.2f}L{x:.2f} {y:.2f}"
            )
        previous = value
    return "".join(parts)


def decades(values: Iterable[float]) -> tuple[int, int]:
    """The powers of ten (seconds) below and above these; at least one apart, and nothing below a millisecond."""
    logs = [log10(max(value, 0.001)) for value in values] or [-3.0, 0.0]
    low, high = floor(min(logs)), ceil(max(logs))
    return (low, high) if high > low else (low, low + 1)


def round_up_scale(largest: int) -> int:
    """The top of a scale: the next of 1, 2, 4, 6, 8 times a power of ten; even above 1, so that its half is whole."""
    if largest <= 2:
        return max(1, largest)
    power = int(10 ** floor(log10(largest)))
    return next(top for step in (1, 2, 4, 6, 8, 10) if (top := step * power) >= largest)


def x_labels(over: ChartRange, first: int) -> list[str]:
    """Time labels at equal distances."""
    step = over.length // (over.labels - 1)
    form = "%H:%M" if over.length <= 86_400 * SECOND else "%a %d, %H:%M"
    return [f"{from_us(first + place * step):{form}}" for place in range(over.labels)]


def _power(power: int) -> str:
    return f"{10**power} s" if 0 <= power <= 1 else span(10.0**power)


def _describe(ended: dict[str, int]) -> str:
    parts = [f"{count(number)} {kind}" for kind in OUTCOMES if (number := ended[kind])]
    return f"Ended runs: {', '.join(parts)}" if parts else "No ended runs"
