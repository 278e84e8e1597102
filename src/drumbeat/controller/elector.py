"""Who leads: a lease with terms, renewed by the heartbeat.

    follower --the store says so--> leader --no answer, expired, another leads--> follower
                                      \\--resigned--> caretaker --another leads--> follower

The wish to lead travels with each beat, and the answer says who has it. We believe that we lead until `lease` seconds after the
question was asked, by our own monotonic clock, so a slow answer cannot lengthen it; when a beat has no answer we do not know,
and follow. Whoever resigns (SIGTERM) gives the lease back with its next beat and goes on firing until another has it, so that a
deploy delays nothing.

Nothing that must be right depends on any of this: two leaders, or none, cost work or a second, never a fire.
"""

import math
from collections.abc import Callable

from drumbeat.clock import Clock
from drumbeat.core.instance import HeartbeatReply, Leader
from drumbeat.ids import InstanceId

OnChange = Callable[[Leader | None], None]


class Elector:
    """Lives on the heart's loop; only `resign` may be called from elsewhere."""

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
        """Whether this instance does what the leader does, now."""
        return self._clock.monotonic() < self._leads_until

    @property
    def leaderless_seconds(self) -> float:
        """Seconds since this instance last heard of a leader, itself included."""
        return self._clock.monotonic() - self._leader_seen_at

    def requested_lease_us(self) -> int | None:
        """For how many microseconds to lead from the next beat on; None: not at all."""
        return None if self._resigned else int(self._lease * 1e6)

    def resign(self) -> None:
        """Leave it to others, from the next beat on."""
        self._resigned = True

    def on_heartbeat(self, me: InstanceId, pulse: HeartbeatReply, asked_at: float) -> None:
        """The answer to a beat that was asked at this moment of the monotonic clock."""
        leader = pulse.leader
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
        """A beat had no answer, or was refused: whether the lease was renewed is unknown."""
        self._leads_until = -math.inf
