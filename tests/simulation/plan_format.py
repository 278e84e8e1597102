"""What a plan says: everything that a seed decides before its run. plan.py draws one, search.py makes it smaller."""

from typing import Literal

import msgspec

from tests.simulation.faults import CallFault, NodeFault

JobKind = Literal[
    "broadcast",
    "quick",
    "flaky",
    "slow",
    "locked",
    "unique",
    "batch",
    "snoozer",
    "doomed",
    "timed",
    "graph",
    "saga",
    "limited",
    "rated",
    "ordered",
]


class PlannedJob(msgspec.Struct, frozen=True, kw_only=True):
    at: float
    kind: JobKind
    delay: float = 0.0
    seconds: float = 0.0
    """How long its handler takes."""
    failures: int = 0
    key: str = ""
    cancel_after: float | None = None
    shape: int = 0
    """Of a graph: what its nodes and edges are drawn from."""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    seed: int
    workers: int
    jobs: tuple[PlannedJob, ...]
    node_faults: tuple[NodeFault, ...]
    call_faults: tuple[CallFault, ...]
    faults_until: float
    in_order: bool = False
    heartbeat: float = 0.5
    dead_after: float = 3.0
    concurrency: int = 4
    batch: int = 500
    lock_lease: float = 4.0
    controller: int | None = None
    """This node runs no jobs: it only observes, declares dead and fires."""
    every: float | None = None
    """The period of a grid schedule; None: there is none."""

    @property
    def faults(self) -> int:
        return len(self.node_faults) + len(self.call_faults)
