"""Messages to processes, on SQLite. The contract is in `store.protocol.RoomStore`.

Nothing here waits for the disk: a power cut ends the receivers of a message as well. `take` reads before it takes the write
lock.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from drumbeat.core.room import RoomMessage
from drumbeat.ids import InstanceId
from drumbeat.store.malformed import Faults
from drumbeat.store.records import as_json
from drumbeat.store.sqlite import rows
from drumbeat.store.sqlite.parts import SqliteParts
from drumbeat.store.sqlite.row_decoder import RowDecoder
from drumbeat.store.sqlite.wake import ROOM_HINT
from drumbeat.store.sqlite.writer import WriteContext


class MessageRow(msgspec.Struct, frozen=True, array_like=True):
    place: int
    id: str
    room: str
    to: InstanceId
    args: str
    signature: str


def _clear_room(values: dict[str, Any], _: Faults) -> dict[str, Any]:
    return values | {"room": ""}


_read_messages = RowDecoder(MessageRow, "message of a room", repair=_clear_room).read


class SqliteRooms:
    def __init__(self, parts: SqliteParts) -> None:
        self._sql = parts.sql.rooms
        self._writer = parts.writer
        self._worker_reader = parts.worker_reader
        self._disk_space = parts.disk_space

    async def send(self, messages: Sequence[RoomMessage]) -> None:
        if messages:
            self._disk_space.check()
            await self._writer.write(self._send, messages, durable=False)

    async def take(self, instance: InstanceId, limit: int) -> list[RoomMessage]:
        if not await self._worker_reader.read(lambda db: db.value(self._sql.has_any, {"to": instance})):
            return []
        return await self._writer.write(self._take, (instance, limit), durable=False)

    async def list_untaken(self, messages: Sequence[RoomMessage]) -> list[str]:
        found = await self._worker_reader.read(lambda db: db.value(self._sql.list_untaken, _to_parameters(messages)))
        return rows.texts(found)

    async def withdraw(self, messages: Sequence[RoomMessage]) -> list[str]:
        return await self._writer.write(self._withdraw, messages, durable=False)

    async def prune(self, min_age_us: int, limit: int, *, exclude: Sequence[InstanceId] = ()) -> int:
        return await self._writer.write(self._prune, (min_age_us, limit, exclude), durable=False)

    # On the writer's thread, inside its transaction.

    def _send(self, write: WriteContext, messages: Sequence[RoomMessage]) -> None:
        for message in messages:
            write.db.run(self._sql.send, msgspec.structs.asdict(message) | {"now": write.now})
        ids = as_json(sorted({message.to for message in messages}))
        write.hints += [
            (wake, ROOM_HINT, 0) for wake in rows.texts(write.db.value(self._sql.wake_addresses, {"ids": ids}))
        ]

    def _take(self, write: WriteContext, given: tuple[InstanceId, int]) -> list[RoomMessage]:
        instance, limit = given
        found = _read_messages(write.db, self._sql.first_messages, {"to": instance, "limit": limit})
        if found:
            write.db.run(self._sql.delete_taken, {"places": as_json([message.place for message in found])})
        # A malformed message has an empty room: it was logged, and is deleted too.
        return [
            RoomMessage(id=each.id, room=each.room, to=each.to, args=each.args, signature=each.signature)
            for each in found
            if each.room
        ]

    def _withdraw(self, write: WriteContext, messages: Sequence[RoomMessage]) -> list[str]:
        named = _to_parameters(messages)
        found = rows.texts(write.db.value(self._sql.list_untaken, named))
        write.db.run(self._sql.withdraw, named)
        return found

    def _prune(self, write: WriteContext, given: tuple[int, int, Sequence[InstanceId]]) -> int:
        age, limit, but = given
        return write.db.run(self._sql.prune, {"until": write.now - age, "limit": limit, "but": as_json(list(but))})


def _to_parameters(messages: Sequence[RoomMessage]) -> dict[str, str]:
    return {"to": as_json([each.to for each in messages]), "ids": as_json([each.id for each in messages])}
