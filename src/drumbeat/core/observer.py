"""Who is dead? Judged by an observer from the counts it sees, never from a clock that somebody else wrote.

After an outage of the store, or a laptop's sleep, every heartbeat is stale, and whoever comes back first would steal all
living jobs. So an instance is dead only when an observer whose own beats were accepted all through the last `dead_after`
seconds saw its count stand still all that time. After a gap in its own beats an observer counts anew. Pure.
"""

from collections.abc import Sequence

from drumbeat.core.instance import Peer
from drumbeat.ids import InstanceId


class Observer:
    def __init__(self, dead_after: float, max_gap: float) -> None:
        self._dead_after = dead_after
        self._max_gap = max_gap
        self._seen: dict[InstanceId, tuple[int, float]] = {}
        self._observed_at: float | None = None

    def reset(self) -> None:
        """A beat of this instance's own was not accepted: what it saw before proves nothing."""
        self._seen.clear()
        self._observed_at = None

    def find_dead(self, peers: Sequence[Peer], asked_at: float, answered_at: float) -> list[Peer]:
        """The peers that are dead. `asked_at` is from before the question, by this machine's monotonic clock."""
        if self._observed_at is not None and answered_at - self._observed_at > self._max_gap:
            self._seen.clear()
        self._observed_at = answered_at
        seen: dict[InstanceId, tuple[int, float]] = {}
        for peer in peers:
            before = self._seen.get(peer.id)
            # First seen at the answer, still the same at the question: the span between is certain.
            seen[peer.id] = before if before is not None and before[0] == peer.beat else (peer.beat, answered_at)
        self._seen = seen
        return [peer for peer in peers if asked_at - seen[peer.id][1] >= self._dead_after]
