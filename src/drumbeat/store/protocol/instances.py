"""What every engine must do with the processes of the cluster."""

from collections.abc import Sequence
from typing import Protocol

from drumbeat.core.claim import ClaimRef
from drumbeat.core.instance import DeadInstanceReport, HeartbeatReply, NewInstance
from drumbeat.ids import InstanceId


class InstanceStore(Protocol):
    """The instances. A heartbeat is a counter that grows; the observers, not the store, decide whether it has stopped."""

    async def register(self, instance: NewInstance) -> None:
        """Add a living instance. A second call with the same id is harmless while it lives."""
        ...

    async def heartbeat(self, id: InstanceId, running: int, *, lead: int | None = None) -> HeartbeatReply:
        """Report that this instance lives and how many jobs it runs; the reply has everything it must know.

        `lead` asks to lead the cluster for this many microseconds from now by the store's clock: in the same step the
        instance takes the lead if it is free, has expired, or ends later than `lead` from now (a clock that stepped
        back), or renews its own. The term grows by one whenever the leader changes, and never decreases. None: it gives
        the lead up, if it has it. `deregister` and `declare_dead` of the leader free it as well. A heartbeat that is
        not accepted (`alive` False) takes nothing.
        """
        ...

    async def declare_dead(
        self, id: InstanceId, *, beat: int | None, started: Sequence[ClaimRef] | None, reason: str
    ) -> DeadInstanceReport:
        """Declare an instance dead, only if its heartbeat counter is still `beat` (None: always), and free its jobs,
        atomically.

        Of its running jobs those in `started` (None: all) get crashes = max(crashes, 1), an Attempt of outcome CRASHED
        with `reason` as error, and are pending again at once, or dead at their crash_limit with their follow-up; the
        others are released uncharged with an Attempt of outcome RELEASED, since they may have run without a report. If
        only one had started and was a crash suspect already (crashes >= 1), the crash is its own: crashes grows by 1.
        Jobs whose cancellation was requested are cancelled. If the instance led, the lead is free. Its record says why
        it died and what became of its jobs (`DeadInstanceReport.describe`). Wakes workers. A second call changes
        nothing.
        """
        ...

    async def deregister(self, id: InstanceId, reason: str) -> None:
        """End an instance: jobs that it still holds are released uncharged, each with an Attempt of outcome RELEASED, since
        they may have run; the lead is freed. Harmless twice."""
        ...

    async def leave_rooms(self, id: InstanceId) -> None:
        """Empty `Instance.rooms` at once, so that no more messages are sent to it. Harmless twice."""
        ...

    async def prune(self, before: int) -> int:
        """Delete instances that ended before this time. Returns how many."""
        ...
