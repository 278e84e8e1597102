"""Room messages on Redis; the contract is in `store.protocol`. Each operation is one script.

A message in a list is a text of lines: the moment (µs), id, room, signature; all that follows is args.
"""

from collections.abc import Sequence
from functools import partial

from drumbeat.core.room import RoomMessage, encode_hint
from drumbeat.ids import InstanceId
from drumbeat.store.redis.pool import RedisPool
from drumbeat.store.redis.record_format import decode_readable


class RedisRooms:
    def __init__(self, pool: RedisPool) -> None:
        self._pool = pool

    async def send(self, messages: Sequence[RoomMessage]) -> None:
        if not messages:
            return
        texts = [value for message in messages for value in (message.to, _encode_message(message))]
        await self._pool.run("send_messages", encode_hint(messages), *texts)

    async def take(self, instance: InstanceId, limit: int) -> list[RoomMessage]:
        texts = await self._pool.run("take_messages", instance, limit)
        return decode_readable("message of a room", partial(_decode_message, instance), texts)

    async def list_untaken(self, messages: Sequence[RoomMessage]) -> list[str]:
        return await self._find(0, messages)

    async def withdraw(self, messages: Sequence[RoomMessage]) -> list[str]:
        return await self._find(1, messages)

    async def _find(self, removes: int, messages: Sequence[RoomMessage]) -> list[str]:
        names = [value for message in messages for value in (message.to, message.id)]
        return [id.decode() for id in await self._pool.run("list_untaken_messages", removes, *names)]

    async def prune(self, min_age_us: int, limit: int, *, exclude: Sequence[InstanceId] = ()) -> int:
        return int(await self._pool.run("prune_messages", min_age_us, limit, *exclude))


def _encode_message(message: RoomMessage) -> str:
    return f"{message.id}\n{message.room}\n{message.signature}\n{message.args}"


def _decode_message(to: InstanceId, text: bytes) -> RoomMessage:
    _, id, room, signature, args = text.decode().split("\n", 4)
    return RoomMessage(id=id, room=room, to=to, args=args, signature=signature)
