"""How long it took until things worked again.

`all` counts every fault. `clean` leaves out where another fault fell in between: one of the store, which makes every observer
begin anew; a machine that stood still; or a second loss of the same job before its handler could begin. The promise is about
one fault at a time, so `clean` is what is compared with it. `parts` says what the clean recovery of a lost run consists of.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from tests.chaos.journal import Entry
from tests.chaos.timelines import SUPERVISED, Timeline

BEFORE = 1.0
"""Seconds: what a fault of the store has begun does not end with it."""
HARMLESS = ("step clock",)
"""Concern everybody, and keep nobody from his work: deaths are noticed by monotonic clocks."""
PARTS = ("noticed", "claimed", "put off", "begun")


class Sample(NamedTuple):
    at: float
    seconds: float
    is_alone: bool = True
    """Nothing else is known to have happened to what was lost."""
    is_restart: bool = False

    def is_clean(self, store_faults: Sequence[tuple[float, float]]) -> bool:
        since = (
            self.at + 0.1 if self.is_restart else self.at - BEFORE
        )  # a restart is itself a fault that has just ended
        return self.is_alone and not any(start < self.at + self.seconds and end > since for start, end in store_faults)


def measure_recovery(entries: Sequence[Entry], timelines: Sequence[Timeline]) -> dict[str, dict[str, Any]]:
    """p50, p99 and max in seconds, for each kind of fault."""
    store_faults = [
        (entry.facts["start"], entry.at)
        for entry in entries
        if entry.event == "fault" and entry.facts["node"] is None and entry.facts["kind"] not in HARMLESS
    ]
    samples: dict[str, list[Sample]] = defaultdict(list)
    for timeline in timelines:
        samples[_name(timeline)].append(_sample(timeline))
    for kind, sample in [*_measure_leaders(entries), *_measure_restarts(entries)]:
        samples[kind].append(sample)
    measured = {kind: _summarise(found, store_faults) for kind, found in sorted(samples.items())}
    for kind in sorted({_name(timeline) for timeline in timelines}):
        clean = [each for each in timelines if _name(each) == kind and _sample(each).is_clean(store_faults)]
        measured[kind]["parts"] = _summarise_parts(clean)
    return measured


def _name(timeline: Timeline) -> str:
    return f"{timeline.kind} killed"


def _sample(timeline: Timeline) -> Sample:
    return Sample(timeline.killed_at, timeline.seconds, is_alone=not timeline.lost_again)


def _measure_leaders(entries: Sequence[Entry]) -> list[tuple[str, Sample]]:
    """How late the first fire was that fell due after the leader's end."""
    ticks = [entry for entry in entries if entry.event == "started" and entry.facts["task"] == "tick"]
    found = []
    for kill in entries:
        if kill.event != "killed" or not kill.facts["leader"]:
            continue
        following = [tick for tick in ticks if tick.at > kill.at and tick.facts["due"] >= kill.facts["wall"]]
        if following:
            kind = "supervised leader killed" if kill.facts["what"] == SUPERVISED else "leader killed"
            found.append((kind, Sample(kill.at, max(0.0, following[0].facts["late"]))))
    return found


def _measure_restarts(entries: Sequence[Entry]) -> list[tuple[str, Sample]]:
    """Until a job was enqueued and another one ran to its end."""
    successes = [entry.at for entry in entries if entry.event == "ended" and entry.facts["result"] is not None]
    acknowledged = [entry.at for entry in entries if entry.event == "acknowledged"]
    found = []
    for back in (entry.at for entry in entries if entry.event == "store is back"):
        nexts = [times[bisect_right(times, back) :][:1] for times in (successes, acknowledged)]
        if all(nexts):
            found.append(("store restarted", Sample(back, max(each[0] for each in nexts) - back, is_restart=True)))
    return found


def _summarise(found: Sequence[Sample], store_faults: Sequence[tuple[float, float]]) -> dict[str, Any]:
    clean = [sample.seconds for sample in found if sample.is_clean(store_faults)]
    return {"all": percentiles([sample.seconds for sample in found]), "clean": percentiles(clean)}


def _summarise_parts(timelines: Sequence[Timeline]) -> dict[str, dict[str, float]]:
    parts: dict[str, list[float]] = {name: [] for name in PARTS}
    for each in timelines:
        times = (each.killed_at, each.noticed_at, each.claimed_at, each.last_claimed_at, each.started_at)
        for name, (begin, end) in zip(PARTS, pairwise(times), strict=True):
            if begin is not None and end is not None:
                parts[name].append(max(0.0, end - begin))
    return {name: percentiles(seconds) for name, seconds in parts.items()}


def percentiles(seconds: Sequence[float]) -> dict[str, float]:
    seconds = sorted(seconds)
    if not seconds:
        return {"count": 0}
    return {
        "count": len(seconds),
        "p50": round(seconds[len(seconds) // 2], 3),
        "p99": round(seconds[min(len(seconds) - 1, int(len(seconds) * 0.99))], 3),
        "max": round(seconds[-1], 3),
    }
