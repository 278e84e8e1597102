"""Messages to processes, on Redis. The contract is in `store.protocol.Rooms`. Each operation is one script.

A message in a list is a text of lines: the moment (µs), id, room, signature; all that follows is args.
"""

from collections.abc import Sequence

from drumbeat.ids import InstanceId
from drumbeat.model.room import RoomMessage, hint
from drumbeat.store.malformed import explain, tell
from drumbeat.store.redis.connections import Link


class RedisRooms:
    def __init__(self, link: Link) -> None:
        self._link = link

    async def send(self, messages: Sequence[RoomMessage]) -> None:
        if not messages:
            return
        texts = [value for message in messages for value in (message.to, _text(message))]
        await self._link.run("rooms_send", hint(messages), *texts)

    async def take(self, instance: InstanceId, limit: int) -> list[RoomMessage]:
        found: list[RoomMessage] = []
        for text in await self._link.run("rooms_take", instance, limit):
            try:
                found.append(_message(instance, text))
            except ValueError as error:
                tell("message of a room", text[:40], [("text", explain("text", text, error))])
        return found

    async def waiting(self, messages: Sequence[RoomMessage]) -> list[str]:
        return await self._named(0, messages)

    async def withdraw(self, messages: Sequence[RoomMessage]) -> list[str]:
        return await self._named(1, messages)

    async def _named(self, removes: int, messages: Sequence[RoomMessage]) -> list[str]:
        names = [value for message in messages for value in (message.to, message.id)]
        return [id.decode() for id in await self._link.run("rooms_waiting", removes, *names)]

    async def prune(self, age: int, limit: int, *, but: Sequence[InstanceId] = ()) -> int:
        count: int = await self._link.run("rooms_prune", age, limit, *but)
        return count


def _text(message: RoomMessage) -> str:
    return f"{message.id}\n{message.room}\n{message.signature}\n{message.args}"


def _message(to: InstanceId, text: bytes) -> RoomMessage:
    _, id, room, signature, args = text.decode().split("\n", 4)
    return RoomMessage(id=id, room=room, to=to, args=args, signature=signature)
