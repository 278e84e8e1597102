"""The jobs of a store on SQLite: the async side of `insert`, `claim` and `completion`, and the smaller operations.

The contract is in `store.protocol.JobStore`. Functions that take a `WriteContext` run on the writer's thread, inside its
transaction. Large batches are prepared, and rows decoded, on the caller's thread.
"""

from collections.abc import Sequence

from drumbeat.core.claim import ClaimRef, ClaimRequest, ClaimResult, Outcome, WriteStatus
from drumbeat.core.job import AddResult, CancelAnswer, EndedJob, JobState, NewJob, ReplayResult
from drumbeat.core.transitions import answer_cancel
from drumbeat.core.uniqueness import select_replays, unique_keys
from drumbeat.ids import InstanceId, JobId
from drumbeat.store.completion_rows import expired_rows
from drumbeat.store.job_reads import missing_job_error
from drumbeat.store.job_search import WHOLE_TEXT
from drumbeat.store.malformed import read_failure
from drumbeat.store.records import EndedRow, StoredJobRow, as_json
from drumbeat.store.sqlfile import Statements
from drumbeat.store.sqlite import rows
from drumbeat.store.sqlite.claim import ClaimedRows, SqliteClaimer, SqliteClaimRequest
from drumbeat.store.sqlite.connection import SqliteConnection
from drumbeat.store.sqlite.insert import (
    MIN_SIMILAR,
    SqliteInsertBatch,
    group_similar,
    load_unique_keys,
)
from drumbeat.store.sqlite.lanes import SqliteLaneClaimer
from drumbeat.store.sqlite.parts import SqliteOperations, SqliteParts
from drumbeat.store.sqlite.row_decoder import UNREADABLE, read_scalars
from drumbeat.store.sqlite.writer import WriteContext

MAX_PRUNED_EDGES = 5_000
"""At most as many in one transaction: a job with a hundred thousand parents must not hold up other writers."""


class SqliteJobs(SqliteOperations):
    def __init__(self, parts: SqliteParts, sql: Statements) -> None:
        super().__init__(parts, sql)
        self._claimer = SqliteClaimer(sql, SqliteLaneClaimer(parts.sql.limits))
        self._completion = parts.completion
        self._inserter = parts.completion.inserter

    async def add(self, jobs: Sequence[NewJob]) -> list[AddResult]:
        if not jobs:
            return []
        self._disk_space.check()
        batch = SqliteInsertBatch(jobs, group_similar(jobs) if len(jobs) >= MIN_SIMILAR else None)
        return await self._writer.write(self._inserter.add, batch, self._inserter.add_all, weight=len(jobs))

    async def report_and_claim(
        self, instance: InstanceId, outcomes: Sequence[Outcome], request: ClaimRequest | None
    ) -> ClaimResult:
        prepared = None if request is None else SqliteClaimRequest(instance, request)
        if prepared is None and not outcomes:
            return ClaimResult(statuses=[], jobs=[], now=self._clock.now_us())
        if prepared is not None and not outcomes and not prepared.claim.is_expected:
            # Read before taking the write lock: most claims find nothing.
            now = self._clock.now_us()
            due, next_due = await self._worker_reader.read(lambda db: self._claimer.has_due(db, prepared, now))
            if not due:
                return ClaimResult(
                    statuses=[], jobs=[], now=now, next_due_at=next_due, has_limited=prepared.has_limited
                )
        statuses, picked, now, next_due, is_releasing = await self._writer.write(
            self._report_and_claim, (instance, outcomes, prepared), durable=bool(outcomes)
        )
        jobs, malformed = rows.decode_claimed(picked)
        return ClaimResult(
            statuses=statuses,
            jobs=jobs,
            now=now,
            next_due_at=next_due,
            is_releasing=is_releasing,
            has_limited=prepared is not None and prepared.has_limited,
            malformed=malformed,
        )

    async def list_running(self, instance: InstanceId) -> list[ClaimRef]:
        return await self._worker_reader.read(
            lambda db: rows.claim_refs(db, self._sql.list_running, {"instance": instance})
        )

    async def save_progress(self, instance: InstanceId, notes: Sequence[tuple[ClaimRef, str]]) -> None:
        if notes:
            saved = [(claim.id, claim.token, progress) for claim, progress in notes]
            await self._writer.write(
                lambda write, given: write.db.run_rows(self._sql.save_progress, 3, given, (instance,)), saved
            )

    async def cancel(self, ids: Sequence[JobId]) -> list[CancelAnswer]:
        return await self._write_and_advance(self._cancel, list(ids)) if ids else []

    async def cancel_keys(self, task: str, keys: Sequence[str]) -> list[CancelAnswer]:
        return await self._write_and_advance(self._cancel_keys, {"task": task, "keys": as_json(keys)}) if keys else []

    async def run_now(self, ids: Sequence[JobId]) -> int:
        return await self._writer.write(self._run_now, list(ids)) if ids else 0

    async def replay(self, ids: Sequence[JobId]) -> list[ReplayResult]:
        return await self._write_and_advance(self._replay, list(ids)) if ids else []

    async def discard(self, ids: Sequence[JobId]) -> int:
        return await self._write_and_advance(self._discard_dead, as_json(ids)) if ids else 0

    async def get_results(self, ids: Sequence[JobId]) -> list[EndedJob | None]:
        wanted = {"ids": as_json(ids)}

        def read(db: SqliteConnection) -> tuple[list[EndedRow | None], int | None]:
            try:
                return rows.ended(db.value(self._sql.results, wanted)), db.value(self._sql.pruned_before)
            except UNREADABLE:
                return self._read_ended(db, ids), db.value(self._sql.pruned_before)

        answers, pruned_before = await self._worker_reader.read(read)
        found: list[EndedJob | None] = []
        for id, row in zip(ids, answers, strict=True):
            if row is None:
                raise missing_job_error(id, pruned_before)
            found.append(row.to_record())
        return found

    async def expire(self, limit: int) -> int:
        parameters = {"now": self._clock.now_us(), "limit": limit}
        if await self._worker_reader.read_value(self._sql.expired, parameters) == "[]":
            return 0
        return await self._write_and_advance(self._expire, limit)

    async def expire_blocked(self, prefix: str, before: int, limit: int) -> int:
        parameters = {"prefix": prefix, "before": before, "limit": limit}
        # A read first: there is nearly never anything to do, and a commit would wake every worker.
        if await self._worker_reader.read_value(self._sql.expired_waits, parameters) == "[]":
            return 0
        return await self._write_and_advance(self._expire_waits, parameters)

    async def prune(self, before: int, limit: int) -> int:
        parameters = {"before": before, "limit": limit}
        if await self._worker_reader.read_value(self._sql.prunable_history, parameters) == "[]":
            return 0
        while (pruned := await self._writer.write(self._prune_history, parameters)) is None:
            pass
        return pruned

    async def pause_queue(self, queue: str, *, by: str, reason: str) -> None:
        def work(write: WriteContext, name: str) -> None:
            write.db.run(self._sql.pause, {"queue": name, "by": by, "reason": reason, "now": write.now})

        await self._writer.write(work, queue)

    async def resume_queue(self, queue: str) -> bool:
        def work(write: WriteContext, name: str) -> bool:
            resumed = write.db.run(self._sql.resume, {"queue": name}) > 0
            if resumed:
                write.notify(0)
            return resumed

        return await self._writer.write(work, queue)

    # On the reader's thread.

    def _read_ended(self, db: SqliteConnection, ids: Sequence[JobId]) -> list[EndedRow | None]:
        """As the statement `ended`, when SQLite cannot make JSON of a row."""
        wanted = {"ids": as_json(ids), "preview": WHOLE_TEXT}
        statements = (
            self._parts.sql.inspect.dead_record,
            self._parts.sql.inspect.live_record,
            self._parts.sql.inspect.history_record,
        )
        found = {row.id: row for statement in statements for row in rows.jobs(db, statement, wanted)}
        return [None if id not in found else _to_ended_row(found[id]) for id in ids]

    # On the writer's thread.

    def _report_and_claim(
        self, write: WriteContext, given: tuple[InstanceId, Sequence[Outcome], SqliteClaimRequest | None]
    ) -> tuple[list[WriteStatus], ClaimedRows, int, int | None, bool]:
        instance, outcomes, request = given
        statuses = self._completion.record_outcomes(write, instance, outcomes) if outcomes else []
        is_releasing = False
        if write.has_releases or (request is not None and request.has_releases):
            is_releasing = self._advancer.advance(write)
        if request is None:
            return statuses, "", write.now, None, is_releasing
        claimed_rows, next_due = self._claimer.claim(write, request)
        return statuses, claimed_rows, write.now, next_due, request.has_releases

    def _cancel(self, write: WriteContext, ids: Sequence[JobId]) -> list[CancelAnswer]:
        states = read_scalars(write.db, self._sql.states, str, {"ids": as_json(ids)})
        answers = {id: answer_cancel(state) for id, state in zip(ids, states, strict=True)}
        pending = as_json([id for id, answer in answers.items() if answer is CancelAnswer.CANCELLED])
        running = as_json([id for id, answer in answers.items() if answer is CancelAnswer.REQUESTED])
        if pending != "[]":
            self._end_pending(write, pending, JobState.CANCELLED)
        if ended := [id for id, state in zip(ids, states, strict=True) if state == JobState.CANCELLED]:
            # Perhaps by a parent's failure: now a person wants it, and no replay makes it wait again.
            write.db.run(self._parts.sql.dependencies.forget_cancelled, {"ids": as_json(ended)})
        if running != "[]":
            write.db.run(self._sql.request_cancel, {"ids": running})
        return [answers[id] for id in ids]

    def _end_pending(self, write: WriteContext, ids: str, state: JobState) -> None:
        write.db.run(self._sql.end_pending, {"ids": ids, "now": write.now, "state": state.value})
        self._completion.delete_ended(write, self._sql.delete_jobs, {"ids": ids})

    def _expire(self, write: WriteContext, limit: int) -> int:
        ids = write.db.value(self._sql.expired, {"now": write.now, "limit": limit})
        if ids != "[]":
            self._end_pending(write, ids, JobState.EXPIRED)
        return len(rows.ids(ids))

    def _cancel_keys(self, write: WriteContext, wanted: dict[str, str]) -> list[CancelAnswer]:
        found = rows.ids(write.db.value(self._sql.live_ids_of_keys, wanted))
        return self._cancel(write, found) if found else []

    def _run_now(self, write: WriteContext, ids: Sequence[JobId]) -> int:
        wanted = {"ids": as_json(ids), "now": write.now}
        write.db.run(self._sql.end_sleeps, wanted)
        changed = write.db.run(self._sql.run_now, wanted)
        if changed:
            write.notify(write.now)
        return changed

    def _replay(self, write: WriteContext, ids: Sequence[JobId]) -> list[ReplayResult]:
        found = rows.dead_letters(write.db, self._sql.dead_letters, {"ids": as_json(ids)})
        keys = load_unique_keys(self._sql, write, unique_keys(found))
        answers, chosen = select_replays(ids, {letter.id: letter for letter in found}, keys)
        if chosen:
            text = as_json(chosen)
            write.db.run(self._sql.insert_last_attempts, {"ids": text})
            write.db.run(self._parts.sql.dependencies.keep_replayed, {"ids": text})
            write.db.run(self._sql.replay, {"ids": text, "now": write.now})
            write.db.run(self._sql.delete_dead, {"ids": text})
            self._inserter.enter_lanes(write, chosen)
            self._advancer.leave_revived(write, text)
            write.notify(write.now)
        return answers

    def _discard_dead(self, write: WriteContext, ids: str) -> int:
        self._advancer.leave_discarded(write, ids)
        write.db.run(self._sql.move_dead_to_history, {"ids": ids})
        return write.db.run(self._sql.delete_dead, {"ids": ids})

    def _expire_waits(self, write: WriteContext, parameters: dict[str, object]) -> int:
        ids = write.db.value(self._sql.expired_waits, parameters)
        found = rows.jobs(write.db, self._parts.sql.inspect.live_record, {"ids": ids, "preview": WHOLE_TEXT})
        if not found:
            return 0
        dead, follow_ups = expired_rows(found, write.now)
        self._completion.insert_dead(write, dead)
        self._inserter.add_follow_ups(write, follow_ups)
        return len(dead)

    def _prune_history(self, write: WriteContext, parameters: dict[str, int]) -> int | None:
        """None: only edges were deleted, and there are more."""
        seqs = write.db.value(self._sql.prunable_history, parameters)
        if self._prune_edges(write, seqs) == MAX_PRUNED_EDGES:
            return None
        write.db.run(self._sql.delete_attempts, {"seqs": seqs})
        write.db.run(self._sql.delete_steps, {"seqs": seqs})
        write.db.run(self._sql.delete_signals, {"seqs": seqs})
        write.db.run(self._parts.sql.dependencies.delete_cancelled_children, {"seqs": seqs})
        workflows = write.db.value(self._parts.sql.workflows.of_pruned, {"seqs": seqs})
        write.db.run(self._parts.sql.dependencies.keep_pruned, {"seqs": seqs})
        pruned = write.db.run(self._sql.delete_history, {"seqs": seqs})
        if workflows != "[]":
            write.db.run(self._parts.sql.workflows.delete_empty, {"ids": workflows})
        if pruned:
            write.db.run(self._sql.set_pruned_before, {"before": parameters["before"]})
        return pruned

    def _prune_edges(self, write: WriteContext, seqs: str) -> int:
        sql = self._parts.sql.dependencies
        edges = write.db.value(sql.pruned_edges, {"seqs": seqs, "limit": MAX_PRUNED_EDGES})
        if edges == "[]":
            return 0
        deleted = write.db.run(sql.delete_edges, {"edges": edges})
        write.db.run(sql.delete_results, {"edges": edges})
        return deleted


def _to_ended_row(job: StoredJobRow) -> EndedRow:
    if job.finished_at is None:
        return EndedRow(job.id, job.task, None, None, None, None)
    if job.state is not JobState.DEAD and (error := read_failure(job.error)) is not None:
        return EndedRow(job.id, job.task, job.state, None, error.message, None)
    return EndedRow(job.id, job.task, job.state, job.result, job.result_error, job.error)
