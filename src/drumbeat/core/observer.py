"""Failure detection: an observer decides which instances are dead from heartbeat counts, never from another machine's clock.

After an outage of the store, or a laptop's sleep, every heartbeat is old, and the first instance to come back would take all
living jobs from the others. So an instance is dead only when an observer, whose own heartbeats were accepted throughout the
last `dead_after` seconds, saw its count unchanged all that time. After a gap in its own heartbeats an observer starts anew.
Pure.
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
        """A heartbeat of this instance was not accepted: earlier observations prove nothing."""
        self._seen.clear()
        self._observed_at = None

    def find_dead(self, peers: Sequence[Peer], asked_at: float, answered_at: float) -> list[Peer]:
        """The peers that are dead. Monotonic times: `asked_at` before the heartbeat was sent, `answered_at` of its reply."""
        if self._observed_at is not None and answered_at - self._observed_at > self._max_gap:
            self._seen.clear()
        self._observed_at = answered_at
        seen: dict[InstanceId, tuple[int, float]] = {}
        for peer in peers:
            before = self._seen.get(peer.id)
            # First seen at an answer, unchanged when the next question was sent: the span between is certain.
            seen[peer.id] = before if before is not None and before[0] == peer.beat else (peer.beat, answered_at)
        self._seen = seen
        return [peer for peer in peers if asked_at - seen[peer.id][1] >= self._dead_after]
