"""Who lives, on SQLite. The contract is in `store.protocol.Instances`."""

from collections.abc import Sequence
from typing import Any

import msgspec

from drumbeat.core.claim import ClaimRef, Outcome
from drumbeat.core.dead_letter import make_follow_up
from drumbeat.core.instance import DeadInstanceReport, HeartbeatReply, InstanceState, Leader, NewInstance, Peer
from drumbeat.core.job import OutcomeKind
from drumbeat.ids import InstanceId, JobId
from drumbeat.store.job_search import WHOLE_TEXT
from drumbeat.store.malformed import keep_readable
from drumbeat.store.outcomes import crash_failure, crashed_outcome, released_outcomes
from drumbeat.store.sqlite import rows
from drumbeat.store.sqlite.completion import SqliteCompletionWriter, SqliteTransitions
from drumbeat.store.sqlite.row_decoder import UNREADABLE
from drumbeat.store.sqlite.rows import SqliteHeldJob, as_json
from drumbeat.store.sqlite.statements import SqliteInspectSql, SqliteInstanceSql, SqliteJobSql
from drumbeat.store.sqlite.writer import WriteContext, Writer

HeartbeatParts = tuple[int, int, list[ClaimRef], list[str], list[Peer], Leader | None, int | None]
_decode_heartbeat = msgspec.json.Decoder(HeartbeatParts).decode


class SqliteInstances:
    def __init__(
        self,
        sql: SqliteInstanceSql,
        jobs: SqliteJobSql,
        inspect: SqliteInspectSql,
        *,
        writer: Writer,
        completion: SqliteCompletionWriter,
    ) -> None:
        self._sql = sql
        self._jobs = jobs
        self._inspect = inspect
        self._writer = writer
        self._completion = completion

    async def register(self, instance: NewInstance) -> None:
        row = msgspec.structs.asdict(instance)
        row |= {name: as_json(row[name]) for name in ("roles", "queues", "tasks", "rooms")}
        await self._writer.write(lambda write, given: write.db.run(self._sql.register, given | {"now": write.now}), row)

    async def heartbeat(self, id: InstanceId, running: int, *, lead: int | None = None) -> HeartbeatReply:
        now, text = await self._writer.write(self._heartbeat, (id, running, lead), durable=False)
        if text is None:
            return HeartbeatReply(alive=False, beat=0, now=now, running=0, cancel_requests=[], blocked_on=[], peers=[])
        try:
            beat, held, cancels, waiting, peers, leader, next_fire = _decode_heartbeat(text)
        except msgspec.DecodeError:
            beat, held, cancels, waiting, peers, leader, next_fire = _drop_unreadable(msgspec.json.decode(text))
        return HeartbeatReply(
            alive=True,
            beat=beat,
            now=now,
            running=held,
            cancel_requests=cancels,
            blocked_on=waiting,
            peers=peers,
            leader=leader,
            next_fire_at=next_fire,
        )

    async def declare_dead(
        self, id: InstanceId, *, beat: int | None, started: Sequence[ClaimRef] | None, reason: str
    ) -> DeadInstanceReport:
        marked = None if started is None else {(hold.id, hold.token) for hold in started}

        def work(write: WriteContext, reason: str) -> DeadInstanceReport:
            parameters = {"id": id, "beat": beat, "state": InstanceState.DEAD.value, "reason": reason, "now": write.now}
            if not write.db.run(self._sql.end, parameters):
                return DeadInstanceReport(declared=False)
            write.db.run(self._sql.release_leadership, {"id": id})
            buried = self._release_jobs_of_dead(write, id, marked, reason)
            write.db.run(self._sql.set_end_reason, {"id": id, "reason": buried.describe(reason)})
            return buried

        return await self._writer.write(work, reason)

    async def deregister(self, id: InstanceId, reason: str) -> None:
        def work(write: WriteContext, reason: str) -> None:
            parameters = {"id": id, "beat": None, "state": InstanceState.LEFT.value, "reason": reason, "now": write.now}
            if write.db.run(self._sql.end, parameters):
                write.db.run(self._sql.release_leadership, {"id": id})
                held = rows.held(write.db, self._jobs.held_by, {"instance": id})
                self._completion.release(write, id, released_outcomes((each.id, each.token) for each in held))

        await self._writer.write(work, reason)

    async def leave_rooms(self, id: InstanceId) -> None:
        await self._writer.write(lambda write, id: write.db.run(self._sql.leave_rooms, {"id": id}), id, durable=False)

    async def prune(self, before: int) -> int:
        return await self._writer.write(
            lambda write, moment: write.db.run(self._sql.delete_ended, {"before": moment}), before
        )

    def _heartbeat(self, write: WriteContext, given: tuple[InstanceId, int, int | None]) -> tuple[int, str | None]:
        id, running, lead = given
        if not write.db.run(self._sql.beat, {"id": id, "running": running, "now": write.now}):
            return write.now, None
        if lead is None:
            write.db.run(self._sql.release_leadership, {"id": id})
        else:
            write.db.run(self._sql.lead, {"id": id, "now": write.now, "lease": lead})
        wanted = {"id": id, "now": write.now}
        try:
            return write.now, write.db.value(self._sql.heartbeat_reply, wanted)
        except UNREADABLE:
            return write.now, self._read_heartbeat_in_parts(write, wanted)

    def _read_heartbeat_in_parts(self, write: WriteContext, wanted: dict[str, Any]) -> str:
        """The same where a row cannot be made JSON: such a row is left out."""
        [(beat, held, next_fire)] = write.db.rows(self._sql.reply_own, wanted)
        cancels = write.db.rows(self._sql.reply_cancels, wanted)
        waiting = [value for (value,) in write.db.rows(self._sql.reply_waiting, wanted)]
        peers = write.db.rows(self._sql.reply_peers, wanted)
        leaders = [{"instance": who, "term": term} for who, term in write.db.rows(self._sql.reply_leader, wanted)]
        return as_json(
            _drop_unreadable([beat, held, cancels, waiting, peers, leaders[0] if leaders else None, next_fire])
        )

    def _release_jobs_of_dead(
        self, write: WriteContext, id: InstanceId, marked: set[tuple[JobId, int]] | None, reason: str
    ) -> DeadInstanceReport:
        """What becomes of a dead instance's jobs."""
        held = rows.held(write.db, self._jobs.held_by, {"instance": id})
        started = [each for each in held if marked is None or (each.id, each.token) in marked]
        transitions = SqliteTransitions(id, write.now)
        suspect = released_ = dead = cancelled = 0
        for each in held:
            blamed = marked is None or (each.id, each.token) in marked
            # A suspect runs alone: if it was the only one that ran, the crash is its own, and counts further.
            crashes = each.crashes + 1 if each.crashes and len(started) == 1 else max(each.crashes, 1)
            if each.cancel_requested:
                transitions.cancel(
                    each,
                    _released_outcome(each) if not blamed else crashed_outcome(each, reason),
                    "crashed" if blamed else None,
                )
                cancelled += 1
            elif not blamed:
                transitions.requeue(each, _released_outcome(each), each.crashes)
                released_ += 1
            elif crashes >= each.crash_limit:
                transitions.make_dead(each, self._build_death_outcome(write, each, reason), crashes)
                dead += 1
            else:
                transitions.requeue(each, crashed_outcome(each, reason), crashes)
                suspect += 1
        self._completion.apply(write, id, transitions)
        return DeadInstanceReport(
            declared=True, crash_suspect=suspect, released=released_, dead=dead, cancelled=cancelled
        )

    def _build_death_outcome(self, write: WriteContext, held: SqliteHeldJob, reason: str) -> Outcome:
        if held.on_dead is None:
            return crashed_outcome(held, reason)
        row = rows.jobs(write.db, self._inspect.live_record, {"ids": as_json([held.id]), "preview": WHOLE_TEXT})[0]
        return crashed_outcome(held, reason, make_follow_up(row.to_record(), crash_failure(reason)))


def _drop_unreadable(parts: list[Any]) -> HeartbeatParts:
    """A pulse without those of its parts that cannot be read."""
    beat, held, cancels, waiting, peers, leader, next_fire = parts
    return (
        beat if type(beat) is int else 0,
        held,
        keep_readable(cancels, ClaimRef),
        keep_readable(waiting, str),
        keep_readable(peers, Peer),
        next(iter(keep_readable([leader], Leader)), None),
        next_fire if type(next_fire) is int else None,
    )


def _released_outcome(held: SqliteHeldJob) -> Outcome:
    return Outcome(id=held.id, token=held.token, kind=OutcomeKind.RELEASED)
