"""What every engine must do with the messages of rooms."""

from collections.abc import Sequence
from typing import Protocol

from drumbeat.core.room import RoomMessage
from drumbeat.ids import InstanceId


class RoomStore(Protocol):
    """An inbox for each instance. A message is delivered at most once, and its fate is not recorded.

    The store delivers to names: it does not know which instances live, which another store may know (see
    `store.coordinated`). The sender takes the names from `Inspector.list_instances`; messages that are never taken are
    pruned.
    """

    async def send(self, messages: Sequence[RoomMessage]) -> None:
        """Put messages into inboxes, all or none, and give their owners a hint (`Subscriber.on_room`).

        They need not survive the end of the server. Repeated after StoreUnavailable, a message may be delivered twice.

        Raises:
            StoreFull: nothing was stored, there is no space.
        """
        ...

    async def take(self, instance: InstanceId, limit: int) -> list[RoomMessage]:
        """Remove and return the oldest messages of an inbox. When there are none, nothing is written."""
        ...

    async def list_untaken(self, messages: Sequence[RoomMessage]) -> list[str]:
        """The ids of those of these messages that are still in their inboxes. A read."""
        ...

    async def withdraw(self, messages: Sequence[RoomMessage]) -> list[str]:
        """Remove those of these messages that are still in their inboxes. Returns their ids: they were not and will not
        be taken."""
        ...

    async def prune(self, min_age_us: int, limit: int, *, exclude: Sequence[InstanceId] = ()) -> int:
        """Delete messages sent `min_age_us` microseconds ago or earlier by the store's clock, at most `limit`, from all
        inboxes but those of `exclude`. Returns how many."""
        ...
