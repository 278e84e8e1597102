"""Who lives: what every engine must do with the processes of the cluster."""

from collections.abc import Sequence
from typing import Protocol

from drumbeat.core.claim import ClaimRef
from drumbeat.core.instance import DeadInstanceReport, HeartbeatReply, NewInstance
from drumbeat.ids import InstanceId


class InstanceStore(Protocol):
    """Who lives. A heart is a count that grows; whether it stands still is judged by the observers, not by the store."""

    async def register(self, instance: NewInstance) -> None:
        """Add a living instance. A second call with the same id is harmless while it lives."""
        ...

    async def heartbeat(self, id: InstanceId, running: int, *, lead: int | None = None) -> HeartbeatReply:
        """Tell that this instance lives and how many jobs it runs, and hear everything it must know.

        `lead` is the wish to be the cluster's leader, for so many microseconds from now by the store's clock: in the same
        step it takes the leadership if that is free, has expired, ends later than `lead` from now (a clock that stepped back),
        or renews its own. The term grows by one whenever the holder changes, and never goes back. None: it does not want it,
        and gives it up if it is its own. `leave` and `bury` of the holder free it as well. A beat that is not accepted
        (`alive` False) takes nothing.
        """
        ...

    async def declare_dead(
        self, id: InstanceId, *, beat: int | None, started: Sequence[ClaimRef] | None, reason: str
    ) -> DeadInstanceReport:
        """Declare an instance dead, only if its count is still `beat` (None: whatever it is), and free its jobs, atomically.

        Of its running jobs those in `started` (None: all) get crashes = max(crashes, 1), an Attempt of outcome CRASHED with
        `reason` as error, and are pending again at once, or dead at their crash_limit with their follow-up; the others are
        released unharmed. If only one had started and it was suspect already (crashes >= 1), the crash is its own: crashes
        grows by 1. Those with a requested cancellation are cancelled. If it led, the lead is free. Its record says why, and
        what became of its jobs (`DeadInstanceReport.describe`). Wakes workers. A second call changes nothing.
        """
        ...

    async def deregister(self, id: InstanceId, reason: str) -> None:
        """Say goodbye: the instance is gone, jobs that it still holds are released unharmed, the lead is free.

        Harmless twice.
        """
        ...

    async def leave_rooms(self, id: InstanceId) -> None:
        """From now on it is in no room (`Instance.rooms` is empty): nobody sends it messages any more. Harmless twice."""
        ...

    async def prune(self, before: int) -> int:
        """Delete the rows of instances that ended before this moment. Returns how many."""
        ...
