"""Sending messages to the workers of a room: the same to all, or a share to each.

    fan_out --> one share to each healthy worker --> watched until it is taken, or its worker has sent a heartbeat
                     ^                                              |
                     |__ sent to another worker <-- withdrawn: its worker died, drains, or is silent

A withdrawn message is deleted from the store, so it is never handled twice. What happens to a message that was taken is not
known here. A broadcast is not watched: a dead worker needs no message.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from drumbeat.clock import Clock
from drumbeat.core.instance import Instance, is_healthy
from drumbeat.core.room import RoomMessage
from drumbeat.errors import SharesNotTaken
from drumbeat.ids import InstanceId, new_job_ids
from drumbeat.store.protocol import Store

MIN_POLL_INTERVAL, MAX_POLL_INTERVAL = 0.002, 0.25
HEALTH_CHECK_DELAY = 0.05
"""Most shares are taken sooner; only after this time is the health of their workers checked."""


@dataclass(eq=False, repr=False)
class RoomSender:
    """Messages to one room of one signature."""

    store: Store
    clock: Clock
    room: str
    signature: str
    heartbeat: float

    async def broadcast(self, args: str) -> int:
        """Send to all living workers of the room. Returns how many of them are healthy.

        A silent one gets the message as well: it may only have been stopped for a while."""
        workers, healthy = await self._find_workers()
        await self._send(list(workers), [args] * len(workers))
        return len(healthy)

    async def fan_out(self, encode_shares: Callable[[int], Sequence[str]]) -> int:
        """Send the shares that `encode_shares(workers)` returns, one each, to healthy workers. Returns how many got one.

        Raises:
            SharesNotTaken: workers died before they took their shares, and no other is left to take them.
        """
        _, healthy = await self._find_workers()
        # So that it is not always the same workers that get more, or get any.
        random.shuffle(healthy)
        messages = await self._send(healthy, encode_shares(len(healthy)))
        sent, have = len(messages), set[InstanceId]()
        while messages:
            lost = await self._watch_shares(messages, have)
            if not lost:
                break
            gone = {message.to for message in lost}
            _, healthy = await self._find_workers()
            others = [id for id in healthy if id not in gone]
            if not others and have:
                raise SharesNotTaken(self.room, len(lost), sent)
            random.shuffle(others)
            again = [others[number % len(others)] for number in range(len(lost))] if others else []
            messages = await self._send(again, [message.args for message in lost[: len(again)]])
        return len(have)

    async def _watch_shares(self, messages: Sequence[RoomMessage], receivers: set[InstanceId]) -> list[RoomMessage]:
        """Wait until all shares are taken, or their workers are alive. Returns the withdrawn ones; adds the receivers of the
        others."""
        left, lost, pause = list(messages), list[RoomMessage](), MIN_POLL_INTERVAL
        beats: dict[InstanceId, int] = {}
        while left:
            await self.clock.sleep(pause)
            waiting = set(await self.store.rooms.list_untaken(left))
            receivers |= {message.to for message in left if message.id not in waiting}
            left = [message for message in left if message.id in waiting]
            if left and pause > HEALTH_CHECK_DELAY:
                workers, healthy = await self._find_workers()
                # A heartbeat since the message was sent: the worker is alive, and will take it.
                alive = {id for id, instance in workers.items() if instance.beat > beats.setdefault(id, instance.beat)}
                receivers |= {message.to for message in left if message.to in alive}
                left = [message for message in left if message.to not in alive]
                gone = [message for message in left if message.to not in healthy]
                withdrawn = set(await self.store.rooms.withdraw(gone)) if gone else set[str]()
                lost += [message for message in gone if message.id in withdrawn]
                receivers |= {message.to for message in gone if message.id not in withdrawn}
                left = [message for message in left if message.to in healthy]
            pause = min(MAX_POLL_INTERVAL, 2 * pause)
        return lost

    async def _find_workers(self) -> tuple[dict[InstanceId, Instance], list[InstanceId]]:
        """The living workers of the room, and the ids of the healthy ones."""
        found = await self.store.inspect.list_instances()
        now = await self.store.inspect.now()
        workers = {each.id: each for each in found if each.rooms.get(self.room) == self.signature}
        return workers, [id for id, each in workers.items() if is_healthy(each, now, self.heartbeat)]

    async def _send(self, to: Sequence[InstanceId], texts: Sequence[str]) -> list[RoomMessage]:
        messages = [
            RoomMessage(id=id, room=self.room, to=name, args=args, signature=self.signature)
            for id, name, args in zip(new_job_ids(len(texts)), to, texts, strict=False)
        ]
        await self.store.rooms.send(messages)
        return messages
