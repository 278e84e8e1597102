"""Jobs inside a transaction of the caller's own, on PostgreSQL. The contract is in `store.protocol.Inside`.

What is to be done is a function of the schema (migration 0002), called with one text on the caller's connection: see
`drivers`. Errors of the caller's own connection are the caller's, and stay what its driver makes of them.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec

from drumbeat.clock import Clock
from drumbeat.errors import ClaimLost, InvalidArguments
from drumbeat.ids import InstanceId, JobId, created_us, is_job_id
from drumbeat.model.job import Added, Hold, NewJob
from drumbeat.store import sqlfile
from drumbeat.store.postgres import drivers
from drumbeat.store.postgres.connections import Address
from drumbeat.store.postgres.own import Pool, PostgresTransaction
from drumbeat.store.postgres.statements import in_schema

LOST, COMPLETED = "DB002", "DB003"
# No such function, schema or table.
_NOT_HERE = frozenset({"42883", "3F000", "42P01"})


class InsideSql(msgspec.Struct, frozen=True, kw_only=True):
    enqueue: str
    complete: str
    end_session: str


_SQL = sqlfile.load(InsideSql, "drumbeat.store.postgres.sql", "inside.sql")
_encode = msgspec.json.Encoder().encode
_answers = msgspec.json.Decoder(list[tuple[JobId, bool]]).decode


class PostgresInside:
    """Needs no open store. `transaction()` belongs to the loop that it is first used on."""

    def __init__(self, address: Address, *, namespace: str, clock: Clock) -> None:
        self._address = address
        self._enqueue = in_schema(_SQL.enqueue, namespace)
        self._complete = in_schema(_SQL.complete, namespace)
        self._pool = Pool(address, _SQL.end_session)

    def check(self) -> None:
        pass  # every PostgreSQL has transactions

    async def add(self, conn: Any, jobs: Sequence[NewJob], *, notify: bool = True) -> list[Added]:
        if not jobs:
            return []
        with self._understood():
            return _added(await drivers.call(conn, self._enqueue, _wanted(jobs, notify)))

    def add_sync(self, conn: Any, jobs: Sequence[NewJob], *, notify: bool = True) -> list[Added]:
        if not jobs:
            return []
        with self._understood():
            return _added(drivers.call_sync(conn, self._enqueue, _wanted(jobs, notify)))

    async def complete(
        self,
        conn: Any,
        instance: InstanceId,
        hold: Hold,
        *,
        started_at: int,
        result: str | None,
        result_error: str | None,
    ) -> None:
        with self._understood(hold):
            await drivers.call(conn, self._complete, _ended(instance, hold, started_at, result, result_error))

    def complete_sync(
        self,
        conn: Any,
        instance: InstanceId,
        hold: Hold,
        *,
        started_at: int,
        result: str | None,
        result_error: str | None,
    ) -> None:
        with self._understood(hold):
            drivers.call_sync(conn, self._complete, _ended(instance, hold, started_at, result, result_error))

    def transaction(self) -> PostgresTransaction:
        return PostgresTransaction(self._pool)

    async def close(self) -> None:
        await self._pool.close()

    @contextmanager
    def _understood(self, hold: Hold | None = None) -> Iterator[None]:
        """Say in our words what is ours; everything else is the caller's."""
        try:
            yield
        except Exception as error:  # of any driver
            state = drivers.sqlstate(error)
            if state in _NOT_HERE:
                raise InvalidArguments(
                    f"conn is connected to a database without the functions of Drumbeat: if it is {self._address.shown}, "
                    "run `drumbeat migrate`",
                    "conn",
                ) from error
            if hold is not None and state in (LOST, COMPLETED):
                raise ClaimLost(hold.id, hold.token, completed=state == COMPLETED) from error
            raise


def _wanted(jobs: Sequence[NewJob], notify: bool) -> str:
    earliest = min(job.id for job in jobs)
    since = created_us(earliest) if is_job_id(earliest) else 0
    return _encode({"jobs": jobs, "since": since, "notify": notify}).decode()


def _added(answer: str) -> list[Added]:
    return [Added(id, created) for id, created in _answers(answer)]


def _ended(instance: InstanceId, hold: Hold, started_at: int, result: str | None, result_error: str | None) -> str:
    facts = {
        "id": hold.id,
        "token": hold.token,
        "instance": instance,
        "started_at": started_at,
        "result": result,
        "result_error": result_error,
    }
    return _encode(facts).decode()
