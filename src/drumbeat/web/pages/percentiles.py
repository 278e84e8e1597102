"""Percentiles p50, p95, p99 of the histograms of roll-ups. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from drumbeat.core.stats import percentile


class Percentiles(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds; None: there were none."""

    count: int
    p50: float | None
    p95: float | None
    p99: float | None


def percentiles(histograms: Iterable[Sequence[int]]) -> Percentiles:
    """Percentiles of merged histograms."""
    buckets = merge_histograms(histograms)
    p50, p95, p99 = (None if (us := percentile(buckets, share)) is None else us / 1e6 for share in (0.50, 0.95, 0.99))
    return Percentiles(count=sum(buckets), p50=p50, p95=p95, p99=p99)


def merge_histograms(histograms: Iterable[Sequence[int]]) -> tuple[int, ...]:
    """The sum of histograms."""
    return tuple(map(sum, zip(*histograms, strict=True)))
