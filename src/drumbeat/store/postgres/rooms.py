"""Messages to processes, on PostgreSQL. The contract is in `store.protocol.Rooms`.

    send --INSERT, NOTIFY "instance instance"--> each worker that listens --> those who are named take what is theirs

A NOTIFY carries 8,000 bytes, so messages lie in a table of their own. It is unlogged: nothing of them goes to the disk's log.
"""

from collections.abc import Sequence

from drumbeat.ids import InstanceId
from drumbeat.model.room import RoomMessage, hint
from drumbeat.store.malformed import salvage, tell
from drumbeat.store.postgres.connections import Link
from drumbeat.store.postgres.statements import Statements


class PostgresRooms:
    def __init__(self, sql: Statements, *, link: Link) -> None:
        self._sql = sql.rooms
        self._link = link

    async def send(self, messages: Sequence[RoomMessage]) -> None:
        if not messages:
            return
        columns = (
            [message.to for message in messages],
            [message.id for message in messages],
            [message.room for message in messages],
            [message.signature for message in messages],
            [message.args for message in messages],
        )
        await self._link.call(lambda session: session.execute(self._sql.send, *columns, hint(messages)))

    async def take(self, instance: InstanceId, limit: int) -> list[RoomMessage]:
        found = await self._link.call(lambda session: session.fetch(self._sql.take, instance, limit))
        messages: list[RoomMessage] = []
        for row in found:
            values, faults = salvage(RoomMessage, dict(row))
            if faults:
                tell("message of a room", row["id"], faults)
            else:
                messages.append(RoomMessage(**values))
        return sorted(messages, key=lambda message: message.id)

    async def waiting(self, messages: Sequence[RoomMessage]) -> list[str]:
        return await self._named(self._sql.waiting, messages)

    async def withdraw(self, messages: Sequence[RoomMessage]) -> list[str]:
        return await self._named(self._sql.withdraw, messages)

    async def _named(self, statement: str, messages: Sequence[RoomMessage]) -> list[str]:
        names = [each.to for each in messages], [each.id for each in messages]
        return [row["id"] for row in await self._link.call(lambda session: session.fetch(statement, *names))]

    async def prune(self, age: int, limit: int, *, but: Sequence[InstanceId] = ()) -> int:
        return len(await self._link.call(lambda session: session.fetch(self._sql.prune, age, limit, list(but))))
