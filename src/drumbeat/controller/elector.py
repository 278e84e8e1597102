"""Leader election: a lease with terms, renewed by the heartbeat.

    follower --granted by the store--> leader --no answer, expired, another leads--> follower
                                         \\--resigned--> caretaker --another leads--> follower

Each beat requests the lease, and its answer names the leader. The leader trusts its lease until `lease` seconds after the
beat was sent, by its own monotonic clock, so that a slow answer cannot lengthen it; when a beat has no answer, it follows. A
leader that resigns (SIGTERM) gives the lease back with its next beat and goes on firing until there is another, so that a
deploy delays nothing.

Correctness does not depend on any of this: two leaders, or none, cost work or a second, never a fire.
"""

import math
from collections.abc import Callable

from drumbeat.clock import Clock
from drumbeat.core.instance import HeartbeatReply, Leader
from drumbeat.ids import InstanceId

OnChange = Callable[[Leader | None], None]


class Elector:
    """Used on the heartbeat's loop; only `resign` may be called from elsewhere."""

    def __init__(self, clock: Clock, lease: float, on_change: OnChange, *, is_candidate: bool = True) -> None:
        self._clock = clock
        self._lease = lease
        self._on_change = on_change
        self._leads_until = -math.inf
        self._resigned = not is_candidate
        self._leader: Leader | None = None
        self._leader_seen_at = clock.monotonic()

    @property
    def is_leader(self) -> bool:
        """Whether this instance acts as the leader now."""
        return self._clock.monotonic() < self._leads_until

    @property
    def leaderless_seconds(self) -> float:
        """Seconds since a reply last named a leader, this instance included."""
        return self._clock.monotonic() - self._leader_seen_at

    def requested_lease_us(self) -> int | None:
        """The lease to request with the next beat, in microseconds; None: none."""
        return None if self._resigned else int(self._lease * 1e6)

    def resign(self) -> None:
        """Request no more leases, from the next beat on."""
        self._resigned = True

    def on_heartbeat(self, me: InstanceId, reply: HeartbeatReply, asked_at: float) -> None:
        """The reply to a beat that was sent at this monotonic time."""
        leader = reply.leader
        if leader is not None:
            self._leader_seen_at = self._clock.monotonic()
        if leader is not None and leader.instance == me:
            self._leads_until = asked_at + self._lease
        elif leader is not None or not self._resigned:
            self._leads_until = -math.inf
        if leader != self._leader:
            self._leader = leader
            self._on_change(leader)

    def on_missed_heartbeat(self) -> None:
        """A beat had no answer, or was refused: it is unknown whether the lease was renewed."""
        self._leads_until = -math.inf
