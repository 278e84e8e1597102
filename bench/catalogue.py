"""Every measure by its name, in the order in which they are taken."""

from collections.abc import Callable

from bench.contender import (
    BACKLOG,
    BURST,
    CONTENTION,
    DRAIN,
    ENQUEUE,
    FLOOR,
    IDLE,
    KEYS,
    LATENCY,
    LATENESS,
    SNAPSHOT,
    Contender,
)
from bench.measures import Figures, Size, drain, enqueue, floor, idle, keys, latency, lateness
from bench.sites import Site
from bench.stress import backlog, burst, contention, snapshot

MEASURES: dict[str, Callable[[Contender, Size, Site], Figures]] = {
    ENQUEUE: enqueue,
    KEYS: keys,
    DRAIN: drain,
    FLOOR: floor,
    LATENCY: latency,
    LATENESS: lateness,
    IDLE: idle,
    BURST: burst,
    CONTENTION: contention,
    SNAPSHOT: snapshot,
    BACKLOG: backlog,
}
