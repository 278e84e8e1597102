"""Sending to the workers of a room: to each of them, or a share to each.

    fan_out --> one share to each healthy worker --> watched until it is taken, or its worker has shown that it lives
                     ^                                              |
                     |__ the share goes to another one <-- withdrawn: its worker died, drains, or is silent

A message that was withdrawn is out of the store, so it is never handled twice. What becomes of a message that was taken is not
known here. A broadcast is not watched: a worker that has died needs no news.
"""

import random
from collections.abc import Callable, Sequence

from drumbeat.clock import Clock
from drumbeat.core.instance import Instance, is_healthy
from drumbeat.core.room import RoomMessage
from drumbeat.errors import SharesNotTaken
from drumbeat.ids import InstanceId, new_job_ids
from drumbeat.store.protocol import Store

MIN_POLL_INTERVAL, MAX_POLL_INTERVAL = 0.002, 0.25
HEALTH_CHECK_DELAY = 0.05
"""Most shares are taken sooner; the workers themselves are looked at only when one is not."""


class RoomSender:
    """Messages to one room of one signature."""

    def __init__(self, store: Store, clock: Clock, room: str, signature: str, *, heartbeat: float) -> None:
        self._store = store
        self._clock = clock
        self._room = room
        self._signature = signature
        self._heartbeat = heartbeat

    async def broadcast(self, args: str) -> int:
        """Send to all living workers of the room. Returns how many of them are healthy.

        One that is silent gets it as well: should it only have stood still, it must not miss the news."""
        there, healthy = await self._find_workers()
        await self._send(list(there), [args] * len(there))
        return len(healthy)

    async def fan_out(self, encode_shares: Callable[[int], Sequence[str]]) -> int:
        """Send what `write(workers)` gives, one each, to healthy workers of the room. Returns how many have them.

        Raises:
            SharesNotTaken: some workers died before they took their shares, and there is nobody else to take them.
        """
        _, healthy = await self._find_workers()
        # So that it is not always the same who get more, or anything at all.
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
                raise SharesNotTaken(self._room, len(lost), sent)
            random.shuffle(others)
            again = [others[number % len(others)] for number in range(len(lost))] if others else []
            messages = await self._send(again, [message.args for message in lost[: len(again)]])
        return len(have)

    async def _watch_shares(self, messages: Sequence[RoomMessage], receivers: set[InstanceId]) -> list[RoomMessage]:
        """Until all are taken, or with workers that live. Returns those that were withdrawn; adds who has the others."""
        left, lost, pause = list(messages), list[RoomMessage](), MIN_POLL_INTERVAL
        beats: dict[InstanceId, int] = {}
        while left:
            await self._clock.sleep(pause)
            waiting = set(await self._store.rooms.list_untaken(left))
            receivers |= {message.to for message in left if message.id not in waiting}
            left = [message for message in left if message.id in waiting]
            if left and pause > HEALTH_CHECK_DELAY:
                there, healthy = await self._find_workers()
                # Its heart has beaten since the message was there: it lives, and will come to it.
                alive = {id for id, instance in there.items() if instance.beat > beats.setdefault(id, instance.beat)}
                receivers |= {message.to for message in left if message.to in alive}
                left = [message for message in left if message.to not in alive]
                gone = [message for message in left if message.to not in healthy]
                withdrawn = set(await self._store.rooms.withdraw(gone)) if gone else set[str]()
                lost += [message for message in gone if message.id in withdrawn]
                receivers |= {message.to for message in gone if message.id not in withdrawn}
                left = [message for message in left if message.to in healthy]
            pause = min(MAX_POLL_INTERVAL, 2 * pause)
        return lost

    async def _find_workers(self) -> tuple[dict[InstanceId, Instance], list[InstanceId]]:
        """Who lives and is in the room, and who of them is healthy."""
        found = await self._store.inspect.list_instances()
        now = await self._store.inspect.now()
        there = {each.id: each for each in found if each.rooms.get(self._room) == self._signature}
        return there, [id for id, each in there.items() if is_healthy(each, now, self._heartbeat)]

    async def _send(self, to: Sequence[InstanceId], texts: Sequence[str]) -> list[RoomMessage]:
        messages = [
            RoomMessage(id=id, room=self._room, to=name, args=args, signature=self._signature)
            for id, name, args in zip(new_job_ids(len(texts)), to, texts, strict=False)
        ]
        await self._store.rooms.send(messages)
        return messages
