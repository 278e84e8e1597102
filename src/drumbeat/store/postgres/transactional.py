"""Jobs inside a transaction of the caller, on PostgreSQL. The contract is in `store.protocol.Transactional`.

Each operation is a function of the schema, called with one JSON text on the caller's connection: see `drivers`. Errors
of the caller's connection are passed on as its driver raises them.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec

from drumbeat.clock import Clock
from drumbeat.core.claim import ClaimRef, CompletedJob
from drumbeat.core.job import AddResult, NewJob
from drumbeat.core.signals import NewSignal, SignalAnswer
from drumbeat.core.step import NewStep
from drumbeat.errors import ClaimLost, InvalidArguments
from drumbeat.ids import InstanceId, JobId, created_us, is_job_id
from drumbeat.store import sqlfile
from drumbeat.store.driver_kinds import detect_kind
from drumbeat.store.postgres import drivers
from drumbeat.store.postgres.connections import PostgresAddress
from drumbeat.store.postgres.job_transaction import PostgresTransaction, TransactionPool
from drumbeat.store.postgres.statements import in_schema
from drumbeat.store.postgres.steps import encode_signal

CLAIM_LOST_STATE, COMPLETED_STATE = "DB002", "DB003"
# No such function, schema or table.
_MISSING_SCHEMA_STATES = frozenset({"42883", "3F000", "42P01"})


_SQL = sqlfile.load("drumbeat.store.postgres.sql", "transactional.sql")
_encode = msgspec.json.Encoder().encode
_decode_answers = msgspec.json.Decoder(list[tuple[JobId, bool]]).decode


class PostgresTransactional:
    """Needs no open store. `transaction()` belongs to the loop that it is first used on."""

    def __init__(self, address: PostgresAddress, *, namespace: str, clock: Clock) -> None:
        self._address = address
        self._enqueue = in_schema(_SQL.enqueue, namespace)
        self._complete = in_schema(_SQL.complete, namespace)
        self._complete_and_enqueue = in_schema(_SQL.complete_and_enqueue, namespace)
        self._record_step = in_schema(_SQL.record_step, namespace)
        self._send_signal = in_schema(_SQL.send_signal, namespace)
        self._pool = TransactionPool(address, _SQL.terminate_session)

    def check_connection(self, conn: Any, *, sync: bool) -> None:
        detect_kind(conn, drivers.KINDS, sync=sync)

    async def add(self, conn: Any, jobs: Sequence[NewJob], *, notify: bool = True) -> list[AddResult]:
        if not jobs:
            return []
        with self._translate_errors():
            return _decode_added(await drivers.call(conn, self._enqueue, _encode_jobs(jobs, notify)))

    def add_sync(self, conn: Any, jobs: Sequence[NewJob], *, notify: bool = True) -> list[AddResult]:
        if not jobs:
            return []
        with self._translate_errors():
            return _decode_added(drivers.call_sync(conn, self._enqueue, _encode_jobs(jobs, notify)))

    async def complete(self, conn: Any, completed: CompletedJob) -> bool:
        with self._translate_errors(completed.claim):
            return bool(await drivers.call(conn, *self._complete_call(completed)))

    def complete_sync(self, conn: Any, completed: CompletedJob) -> bool:
        with self._translate_errors(completed.claim):
            return bool(drivers.call_sync(conn, *self._complete_call(completed)))

    async def record_step(self, conn: Any, instance: InstanceId, step: NewStep) -> None:
        with self._translate_errors(step.claim):
            await drivers.call(conn, self._record_step, _encode_step(instance, step))

    def record_step_sync(self, conn: Any, instance: InstanceId, step: NewStep) -> None:
        with self._translate_errors(step.claim):
            drivers.call_sync(conn, self._record_step, _encode_step(instance, step))

    async def send_signal(self, conn: Any, signal: NewSignal) -> SignalAnswer:
        with self._translate_errors():
            return SignalAnswer(await drivers.call(conn, self._send_signal, encode_signal(signal)))

    def send_signal_sync(self, conn: Any, signal: NewSignal) -> SignalAnswer:
        with self._translate_errors():
            return SignalAnswer(drivers.call_sync(conn, self._send_signal, encode_signal(signal)))

    def transaction(self) -> PostgresTransaction:
        return PostgresTransaction(self._pool)

    def _complete_call(self, completed: CompletedJob) -> tuple[str, str]:
        """The statement and its text."""
        text, follow_up = _encode_completed(completed), completed.follow_up
        if follow_up is None:
            return self._complete, text
        calls = {"completed": text, "follow_up": _encode_jobs([follow_up], True)}
        return self._complete_and_enqueue, _encode(calls).decode()

    async def close(self) -> None:
        await self._pool.close()

    @contextmanager
    def _translate_errors(self, claim: ClaimRef | None = None) -> Iterator[None]:
        """Translate errors of our functions; everything else is the caller's."""
        try:
            yield
        except Exception as error:  # of any driver
            state = drivers.sqlstate(error)
            if state in _MISSING_SCHEMA_STATES:
                raise InvalidArguments(
                    f"conn is connected to a database without the functions of Drumbeat: if it is {self._address.masked_url}, "
                    "run `drumbeat migrate`",
                    "conn",
                ) from error
            if claim is not None and state in (CLAIM_LOST_STATE, COMPLETED_STATE):
                raise ClaimLost(claim.id, claim.token, completed=state == COMPLETED_STATE) from error
            raise


def _encode_jobs(jobs: Sequence[NewJob], notify: bool) -> str:
    earliest = min(job.id for job in jobs)
    since = created_us(earliest) if is_job_id(earliest) else 0
    return _encode({"jobs": jobs, "since": since, "notify": notify}).decode()


def _decode_added(answer: str) -> list[AddResult]:
    return [AddResult(id, created) for id, created in _decode_answers(answer)]


def _encode_step(instance: InstanceId, step: NewStep) -> str:
    facts = msgspec.structs.asdict(step) | msgspec.structs.asdict(step.claim) | {"instance": instance}
    del facts["claim"]
    return _encode(facts).decode()


def _encode_completed(completed: CompletedJob) -> str:
    facts = msgspec.structs.asdict(completed) | msgspec.structs.asdict(completed.claim)
    del facts["claim"], facts["follow_up"]
    return _encode(facts).decode()
