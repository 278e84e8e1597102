"""Messages of rooms on PostgreSQL. The contract is in `store.protocol.RoomStore`.

    send --INSERT, NOTIFY "instance instance"--> each worker that listens --> those that are named take their messages

A NOTIFY carries at most 8,000 bytes, so messages are in a table of their own. It is unlogged: nothing is written to the
WAL.
"""

from collections.abc import Sequence

import msgspec

from drumbeat.core.room import RoomMessage, encode_hint
from drumbeat.ids import InstanceId
from drumbeat.store.postgres.parts import PostgresParts
from drumbeat.store.postgres.rows import to_columns
from drumbeat.store.records import ROOM_MESSAGES


class PostgresRooms:
    def __init__(self, parts: PostgresParts) -> None:
        self._sql = parts.sql.rooms
        self._connection = parts.connection

    async def send(self, messages: Sequence[RoomMessage]) -> None:
        if not messages:
            return
        columns = to_columns(map(msgspec.structs.astuple, messages))
        await self._connection.call(lambda session: session.execute(self._sql.send, *columns, encode_hint(messages)))

    async def take(self, instance: InstanceId, limit: int) -> list[RoomMessage]:
        found = await self._connection.call(lambda session: session.fetch(self._sql.take, instance, limit))
        return sorted(ROOM_MESSAGES.read_rows(found), key=lambda message: message.id)

    async def list_untaken(self, messages: Sequence[RoomMessage]) -> list[str]:
        return await self._fetch_ids(self._sql.list_untaken, messages)

    async def withdraw(self, messages: Sequence[RoomMessage]) -> list[str]:
        return await self._fetch_ids(self._sql.withdraw, messages)

    async def _fetch_ids(self, statement: str, messages: Sequence[RoomMessage]) -> list[str]:
        names = [each.to for each in messages], [each.id for each in messages]
        return [row["id"] for row in await self._connection.call(lambda session: session.fetch(statement, *names))]

    async def prune(self, min_age_us: int, limit: int, *, exclude: Sequence[InstanceId] = ()) -> int:
        return len(
            await self._connection.call(
                lambda session: session.fetch(self._sql.prune, min_age_us, limit, list(exclude))
            )
        )
