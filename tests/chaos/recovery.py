"""How long it took until things worked again, from the journal."""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from tests.chaos.journal import Entry


def measure_recovery(entries: Sequence[Entry]) -> dict[str, dict[str, Any]]:
    """p50, p99 and max in seconds, for each kind of fault; `clean`: only where no fault of the store fell in between."""
    store_faults = [
        (entry.facts["start"], entry.at) for entry in entries if entry.event == "fault" and entry.facts["node"] is None
    ]
    samples: dict[str, list[tuple[float, float]]] = defaultdict(list)
    starts: dict[str, list[float]] = defaultdict(list)
    ended = {entry.facts["run"] for entry in entries if entry.event == "ended"}
    open_runs = [entry for entry in entries if entry.event == "started" and entry.facts["run"] not in ended]
    ticks = []
    successes = [entry.at for entry in entries if entry.event == "ended" and entry.facts["result"] is not None]
    acknowledged = [entry.at for entry in entries if entry.event == "acknowledged"]
    for entry in entries:
        if entry.event == "started":
            starts[entry.facts["job"]].append(entry.at)
            if entry.facts["task"] == "tick":
                ticks.append(entry)
    for entry in entries:
        if entry.event == "killed":
            kind = "supervised worker killed" if entry.facts["supervised"] else "worker killed"
            for run in open_runs:
                if {run.pid, run.parent} & set(entry.facts["pids"]) and run.at < entry.at:
                    again = [at for at in starts[run.facts["job"]] if at > entry.at]
                    if again:
                        samples[kind].append((entry.at, min(again) - entry.at))
            if entry.facts["leader"]:
                label = "supervised leader killed" if entry.facts["supervised"] else "leader killed"
                following = [tick for tick in ticks if tick.at > entry.at and tick.facts["due"] >= entry.facts["wall"]]
                if following:
                    samples[label].append((entry.at, max(0.0, following[0].facts["late"])))
        if entry.event == "store is back":
            nexts = [times[bisect_right(times, entry.at) :][:1] for times in (successes, acknowledged)]
            if all(nexts):
                samples["store restarted"].append((entry.at, max(found[0] for found in nexts) - entry.at))
    return {kind: summarise(found, store_faults) for kind, found in sorted(samples.items())}


def summarise(found: list[tuple[float, float]], store_faults: list[tuple[float, float]]) -> dict[str, Any]:
    clean = [
        seconds
        for at, seconds in found
        if not any(start < at + seconds and end > at - 1.0 and end != at for start, end in store_faults)
    ]
    return {"all": percentiles([seconds for _, seconds in found]), "clean": percentiles(clean)}


def percentiles(seconds: list[float]) -> dict[str, float]:
    seconds = sorted(seconds)
    if not seconds:
        return {"count": 0}
    return {
        "count": len(seconds),
        "p50": round(seconds[len(seconds) // 2], 3),
        "p99": round(seconds[min(len(seconds) - 1, int(len(seconds) * 0.99))], 3),
        "max": round(seconds[-1], 3),
    }
