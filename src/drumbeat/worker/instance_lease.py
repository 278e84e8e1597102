"""How long a worker may believe that what it has claimed is still its own."""

from drumbeat.clock import Clock


class InstanceLease:
    """Other instances declare this one dead when they have seen no heartbeat for `dead_after` seconds: not before that time has
    passed since the last accepted heartbeat was sent. After it, a claim may have been given to others or cancelled, so nothing
    that is only held is started until the next heartbeat is accepted.
    """

    def __init__(self, dead_after: float, clock: Clock) -> None:
        self._dead_after = dead_after
        self._monotonic = clock.monotonic
        self._ends_at = 0.0

    def renew(self, asked_at: float) -> None:
        """A heartbeat was accepted, or the registration; `asked_at`: the monotonic time before it was sent."""
        self._ends_at = asked_at + self._dead_after

    def is_current(self) -> bool:
        return self._monotonic() < self._ends_at
