"""Instances on SQLite. The contract is in `store.protocol.Instances`."""

from collections.abc import Sequence
from typing import Any

import msgspec

from drumbeat.core import transitions
from drumbeat.core.claim import ClaimRef
from drumbeat.core.instance import DeadInstanceReport, HeartbeatReply, InstanceState, Leader, NewInstance, Peer
from drumbeat.ids import InstanceId, JobId
from drumbeat.store.job_search import WHOLE_TEXT
from drumbeat.store.malformed import keep_readable
from drumbeat.store.records import as_json
from drumbeat.store.sqlite import rows
from drumbeat.store.sqlite.parts import SqliteOperations
from drumbeat.store.sqlite.row_decoder import UNREADABLE
from drumbeat.store.sqlite.writer import WriteContext

_decode_heartbeat = msgspec.json.Decoder(HeartbeatReply).decode


class SqliteInstances(SqliteOperations):
    async def register(self, instance: NewInstance) -> None:
        row = msgspec.structs.asdict(instance)
        row |= {name: as_json(row[name]) for name in ("roles", "queues", "tasks", "rooms")}
        await self._writer.write(lambda write, given: write.db.run(self._sql.register, given | {"now": write.now}), row)

    async def heartbeat(self, id: InstanceId, running: int, *, lead: int | None = None) -> HeartbeatReply:
        now, text = await self._writer.write(self._heartbeat, (id, running, lead), durable=False)
        if text is None:
            return HeartbeatReply(alive=False, beat=0, now=now, running=0, cancel_requests=[], blocked_on=[], peers=[])
        try:
            return _decode_heartbeat(text)
        except msgspec.DecodeError:
            return _drop_unreadable(msgspec.json.decode(text))

    async def declare_dead(
        self, id: InstanceId, *, beat: int | None, started: Sequence[ClaimRef] | None, reason: str
    ) -> DeadInstanceReport:
        marked = None if started is None else {(claim.id, claim.token) for claim in started}

        def work(write: WriteContext, reason: str) -> DeadInstanceReport:
            parameters = {"id": id, "beat": beat, "state": InstanceState.DEAD.value, "reason": reason, "now": write.now}
            if not write.db.run(self._sql.set_ended, parameters):
                return DeadInstanceReport(declared=False)
            write.db.run(self._sql.release_leadership, {"id": id})
            report = self._release_jobs_of_dead(write, id, marked, reason)
            write.db.run(self._sql.set_end_reason, {"id": id, "reason": report.describe(reason)})
            return report

        return await self._write_and_advance(work, reason)

    async def deregister(self, id: InstanceId, reason: str) -> None:
        def work(write: WriteContext, reason: str) -> None:
            parameters = {"id": id, "beat": None, "state": InstanceState.LEFT.value, "reason": reason, "now": write.now}
            if write.db.run(self._sql.set_ended, parameters):
                write.db.run(self._sql.release_leadership, {"id": id})
                held = rows.held(write.db, self._parts.sql.jobs.held_by, {"instance": id})
                self._parts.completion.release(write, id, [transitions.leave_outcome(job) for job in held])

        await self._write_and_advance(work, reason)

    async def leave_rooms(self, id: InstanceId) -> None:
        await self._writer.write(lambda write, id: write.db.run(self._sql.leave_rooms, {"id": id}), id, durable=False)

    async def prune(self, before: int) -> int:
        return await self._writer.write(
            lambda write, before: write.db.run(self._sql.delete_ended, {"before": before}), before
        )

    def _heartbeat(self, write: WriteContext, given: tuple[InstanceId, int, int | None]) -> tuple[int, str | None]:
        id, running, lead = given
        if not write.db.run(self._sql.heartbeat, {"id": id, "running": running, "now": write.now}):
            return write.now, None
        if lead is None:
            write.db.run(self._sql.release_leadership, {"id": id})
        else:
            write.db.run(self._sql.take_leadership, {"id": id, "now": write.now, "lease": lead})
        wanted = {"id": id, "now": write.now}
        try:
            return write.now, write.db.value(self._sql.heartbeat_reply, wanted)
        except UNREADABLE:
            return write.now, self._read_heartbeat_in_parts(write, wanted)

    def _read_heartbeat_in_parts(self, write: WriteContext, wanted: dict[str, Any]) -> str:
        """The heartbeat reply where a row cannot be converted to JSON: without that row."""
        [(beat, running, next_fire_at)] = write.db.rows(self._sql.reply_own, wanted)
        leaders = [{"instance": who, "term": term} for who, term in write.db.rows(self._sql.reply_leader, wanted)]
        parts = {
            "beat": beat,
            "running": running,
            "cancel_requests": write.db.rows(self._sql.reply_cancels, wanted),
            "blocked_on": [value for (value,) in write.db.rows(self._sql.reply_waiting, wanted)],
            "peers": write.db.rows(self._sql.reply_peers, wanted),
            "leader": leaders[0] if leaders else None,
            "next_fire_at": next_fire_at,
        }
        return as_json(_drop_unreadable(parts | {"alive": True, "now": write.now}))

    def _release_jobs_of_dead(
        self, write: WriteContext, id: InstanceId, started: set[tuple[JobId, int]] | None, reason: str
    ) -> DeadInstanceReport:
        jobs = rows.held(write.db, self._parts.sql.jobs.held_by, {"instance": id})
        decided = transitions.blame_crash(jobs, started, reason, write.now)
        if dead_ids := transitions.find_on_dead_jobs(decided):
            found = rows.jobs(
                write.db, self._parts.sql.inspect.live_record, {"ids": as_json(dead_ids), "preview": WHOLE_TEXT}
            )
            decided = transitions.add_follow_ups(
                decided, [row.to_record() for row in found], transitions.crash_failure(reason)
            )
        self._parts.completion.apply(write, id, decided)
        return transitions.report_crash(transition for _, transition in decided)


def _drop_unreadable(reply: dict[str, Any]) -> HeartbeatReply:
    """A heartbeat reply without the parts that cannot be read."""
    lists = {"cancel_requests": ClaimRef, "blocked_on": str, "peers": Peer}
    readable: dict[str, Any] = {name: keep_readable(reply[name], kind) for name, kind in lists.items()}
    readable["beat"] = reply["beat"] if type(reply["beat"]) is int else 0
    readable["leader"] = next(iter(keep_readable([reply["leader"]], Leader)), None)
    readable["next_fire_at"] = reply["next_fire_at"] if type(reply["next_fire_at"]) is int else None
    return HeartbeatReply(**reply | readable)
