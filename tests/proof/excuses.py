"""Which faults explain what would break a promise without them: those of the node, at the time, of a kind that matters."""

from collections.abc import Collection, Sequence

from tests.proof.history import Disturbance, History, NodeLife

NETWORK = frozenset(
    {"lost request", "lost answer", "late request", "late answer", "ghost request", "outage", "full", "repeated"}
    | {"cut", "delay", "lose answers", "tear", "swallow", "refuse"}
)
"""Faults between a node and its store. The first line has the simulation's, the second those of chaos."""
HARMLESS = frozenset({"full", "repeated"})
"""A full store refuses what is new, and nothing that leases need; a repeated call changes nothing."""
CLOCK = frozenset({"clock", "step clock"})
REQUESTS = frozenset({"stop", "terminate"})
"""To stop in order: the simulation's word and that of chaos, in which "stop" is SIGSTOP."""
MAX_REQUEST_SECONDS = 0.1


def has_fault(
    history: History,
    node: str | None,
    start: float,
    end: float,
    *,
    calls: tuple[str, ...] = ("",),
    ignored: Collection[str] = HARMLESS,
) -> bool:
    """Whether a fault concerned this node (None: anything) between these times, all calls or those that begin with `calls`."""
    return _concerns(history.disturbances, node, start, end, calls, ignored)


def _concerns(
    faults: Sequence[Disturbance],
    node: str | None,
    start: float,
    end: float,
    calls: tuple[str, ...],
    ignored: Collection[str],
) -> bool:
    return any(
        (fault.node is None or node is None or fault.node == node)
        and fault.start <= end
        and fault.end >= start
        and fault.kind not in ignored
        and (fault.call is None or fault.call.startswith(calls))
        for fault in faults
    )


def has_other_fault(
    history: History, life: NodeLife, start: float, end: float, *, calls: tuple[str, ...] = ("",)
) -> bool:
    """Whether anything but the request to stop concerned the node of this life between these times."""
    asked_at = life.stop_asked_at
    others = [
        fault
        for fault in history.disturbances
        if asked_at is None or fault.kind not in REQUESTS or abs(fault.start - asked_at) > MAX_REQUEST_SECONDS
    ]
    return _concerns(others, life.node, start, end, calls, HARMLESS)


def find_life(history: History, node: str, at: float) -> NodeLife | None:
    """The life of this node at this time."""
    return next((life for life in history.lives if life.node == node and is_within(life, at)), None)


def is_within(life: NodeLife, at: float) -> bool:
    """Whether it lasted at this time. The next life may begin at its end."""
    return life.start <= at and (life.end is None or at < life.end)


def lives_through(history: History, node: str, start: float, end: float) -> bool:
    """Whether one life of this node lasted from `start` to `end`, and nobody had asked it to stop by then."""
    return any(
        life.node == node
        and life.start <= start
        and (life.end is None or life.end >= end)
        and (life.stop_asked_at is None or life.stop_asked_at > end)
        for life in history.lives
    )


def has_steady_node(
    history: History,
    start: float,
    end: float,
    *,
    grace: float = 0.0,
    calls: tuple[str, ...] = ("",),
    ignored: Collection[str] = HARMLESS,
) -> bool:
    """Whether some node lived from `start` to `end`, and had no fault from `grace` before that on."""
    nodes = dict.fromkeys(life.node for life in history.lives)
    return any(
        lives_through(history, node, start, end)
        and not has_fault(history, node, start - grace, end, calls=calls, ignored=ignored)
        for node in nodes
    )


def power_cuts(history: History) -> list[float]:
    return sorted(fault.start for fault in history.disturbances if fault.kind == "power")
