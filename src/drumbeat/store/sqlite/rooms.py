"""Messages to processes, on SQLite. The contract is in `store.protocol.RoomStore`.

Nothing here waits for the disk: a power cut ends the receivers of a message as well. `take` reads before it takes the write
lock.
"""

from collections.abc import Sequence

import msgspec

from drumbeat.core.room import RoomMessage
from drumbeat.ids import InstanceId
from drumbeat.store.records import ROOM_MESSAGES, as_json
from drumbeat.store.sqlite import rows
from drumbeat.store.sqlite.parts import SqliteOperations
from drumbeat.store.sqlite.wake import ROOM_HINT
from drumbeat.store.sqlite.writer import WriteContext


class SqliteRooms(SqliteOperations):
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
        # A malformed message is logged, and deleted too.
        taken = ROOM_MESSAGES.read_rows(write.db.rows(self._sql.take, {"to": instance, "limit": limit}))
        return sorted(taken, key=lambda message: message.id)

    def _withdraw(self, write: WriteContext, messages: Sequence[RoomMessage]) -> list[str]:
        return [id for (id,) in write.db.rows(self._sql.withdraw, _to_parameters(messages))]

    def _prune(self, write: WriteContext, given: tuple[int, int, Sequence[InstanceId]]) -> int:
        age, limit, but = given
        return write.db.run(self._sql.prune, {"until": write.now - age, "limit": limit, "but": as_json(list(but))})


def _to_parameters(messages: Sequence[RoomMessage]) -> dict[str, str]:
    return {"to": as_json([each.to for each in messages]), "ids": as_json([each.id for each in messages])}
