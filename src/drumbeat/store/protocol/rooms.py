"""Messages to processes: what every engine must do with rooms."""

from collections.abc import Sequence
from typing import Protocol

from drumbeat.core.room import RoomMessage
from drumbeat.ids import InstanceId


class RoomStore(Protocol):
    """An inbox for each instance. A message is given at most once, and nothing is said about what became of it.

    The store delivers to names: it does not know who lives, which may be known to another store (see `store.coordinated`).
    Whoever sends takes the names from `Inspect.instances`; what nobody takes is pruned.
    """

    async def send(self, messages: Sequence[RoomMessage]) -> None:
        """Put messages into inboxes, all or none, and give their owners a hint (`Wake.listen_rooms`).

        They need not survive the end of the server. Repeated after StoreUnavailable, a message may be given twice.

        Raises:
            StoreFull: nothing was stored, there is no room.
        """
        ...

    async def take(self, instance: InstanceId, limit: int) -> list[RoomMessage]:
        """Remove the oldest messages from an inbox, and give them. When there are none, nothing is written."""
        ...

    async def list_untaken(self, messages: Sequence[RoomMessage]) -> list[str]:
        """The ids of those of these messages that still lie in their inboxes: nobody has taken them. A read."""
        ...

    async def withdraw(self, messages: Sequence[RoomMessage]) -> list[str]:
        """Remove those of these messages that still lie in their inboxes. Returns their ids: nobody has taken these, and nobody
        will."""
        ...

    async def prune(self, min_age_us: int, limit: int, *, exclude: Sequence[InstanceId] = ()) -> int:
        """Delete messages that were sent so many microseconds ago or earlier by the store's clock, at most `limit`, from all
        inboxes but these. Returns how many."""
        ...
