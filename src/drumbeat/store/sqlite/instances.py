"""Who lives, on SQLite. The contract is in `store.protocol.Instances`."""

from collections.abc import Sequence
from typing import Any

import msgspec

from drumbeat.ids import InstanceId, JobId
from drumbeat.model.death import follow_up
from drumbeat.model.instance import Buried, InstanceState, Leader, NewInstance, Peer, Pulse
from drumbeat.model.job import Hold, Outcome, OutcomeKind
from drumbeat.store.malformed import readable
from drumbeat.store.outcomes import crash, crashed, released
from drumbeat.store.searching import WHOLE
from drumbeat.store.sqlite import rows
from drumbeat.store.sqlite.ending import Ending, Fates
from drumbeat.store.sqlite.rows import Held, as_json
from drumbeat.store.sqlite.shapes import UNREADABLE
from drumbeat.store.sqlite.statements import InspectSql, InstanceSql, JobSql
from drumbeat.store.sqlite.writer import Write, Writer

Beat = tuple[int, int, list[Hold], list[str], list[Peer], Leader | None, int | None]
_pulse = msgspec.json.Decoder(Beat).decode


class SqliteInstances:
    def __init__(self, sql: InstanceSql, jobs: JobSql, inspect: InspectSql, *, writer: Writer, ending: Ending) -> None:
        self._sql = sql
        self._jobs = jobs
        self._inspect = inspect
        self._writer = writer
        self._ending = ending

    async def register(self, instance: NewInstance) -> None:
        row = msgspec.structs.asdict(instance)
        row |= {name: as_json(row[name]) for name in ("roles", "queues", "tasks", "rooms")}
        await self._writer.write(lambda write, given: write.db.run(self._sql.register, given | {"now": write.now}), row)

    async def beat(self, id: InstanceId, running: int, *, lead: int | None = None) -> Pulse:
        now, text = await self._writer.write(self._beat, (id, running, lead), durable=False)
        if text is None:
            return Pulse(alive=False, beat=0, now=now, running=0, cancels=[], waiting=[], peers=[])
        try:
            beat, held, cancels, waiting, peers, leader, next_fire = _pulse(text)
        except msgspec.DecodeError:
            beat, held, cancels, waiting, peers, leader, next_fire = _salvaged(msgspec.json.decode(text))
        return Pulse(
            alive=True,
            beat=beat,
            now=now,
            running=held,
            cancels=cancels,
            waiting=waiting,
            peers=peers,
            leader=leader,
            next_fire=next_fire,
        )

    async def bury(self, id: InstanceId, *, beat: int | None, started: Sequence[Hold] | None, why: str) -> Buried:
        marked = None if started is None else {(hold.id, hold.token) for hold in started}

        def work(write: Write, why: str) -> Buried:
            parameters = {"id": id, "beat": beat, "state": InstanceState.DEAD.value, "why": why, "now": write.now}
            if not write.db.run(self._sql.end, parameters):
                return Buried(buried=False)
            write.db.run(self._sql.give_up_lead, {"id": id})
            buried = self._free(write, id, marked, why)
            write.db.run(self._sql.tell_end, {"id": id, "why": buried.told(why)})
            return buried

        return await self._writer.write(work, why)

    async def leave(self, id: InstanceId, why: str) -> None:
        def work(write: Write, why: str) -> None:
            parameters = {"id": id, "beat": None, "state": InstanceState.LEFT.value, "why": why, "now": write.now}
            if write.db.run(self._sql.end, parameters):
                write.db.run(self._sql.give_up_lead, {"id": id})
                held = rows.held(write.db, self._jobs.held_by, {"instance": id})
                self._ending.give_back(write, id, released((each.id, each.token) for each in held))

        await self._writer.write(work, why)

    async def leave_rooms(self, id: InstanceId) -> None:
        await self._writer.write(lambda write, id: write.db.run(self._sql.leave_rooms, {"id": id}), id, durable=False)

    async def forget(self, before: int) -> int:
        return await self._writer.write(
            lambda write, moment: write.db.run(self._sql.forget, {"before": moment}), before
        )

    def _beat(self, write: Write, given: tuple[InstanceId, int, int | None]) -> tuple[int, str | None]:
        id, running, lead = given
        if not write.db.run(self._sql.beat, {"id": id, "running": running, "now": write.now}):
            return write.now, None
        if lead is None:
            write.db.run(self._sql.give_up_lead, {"id": id})
        else:
            write.db.run(self._sql.lead, {"id": id, "now": write.now, "lease": lead})
        wanted = {"id": id, "now": write.now}
        try:
            return write.now, write.db.value(self._sql.pulse, wanted)
        except UNREADABLE:
            return write.now, self._pulse_in_parts(write, wanted)

    def _pulse_in_parts(self, write: Write, wanted: dict[str, Any]) -> str:
        """The same where a row cannot be made JSON: such a row is left out."""
        [(beat, held, next_fire)] = write.db.rows(self._sql.pulse_own, wanted)
        cancels = write.db.rows(self._sql.pulse_cancels, wanted)
        waiting = [value for (value,) in write.db.rows(self._sql.pulse_waiting, wanted)]
        peers = write.db.rows(self._sql.pulse_peers, wanted)
        leaders = [{"instance": who, "term": term} for who, term in write.db.rows(self._sql.pulse_leader, wanted)]
        return as_json(_salvaged([beat, held, cancels, waiting, peers, leaders[0] if leaders else None, next_fire]))

    def _free(self, write: Write, id: InstanceId, marked: set[tuple[JobId, int]] | None, why: str) -> Buried:
        """What becomes of a dead instance's jobs."""
        held = rows.held(write.db, self._jobs.held_by, {"instance": id})
        started = [each for each in held if marked is None or (each.id, each.token) in marked]
        fates = Fates(id, write.now)
        suspect = released_ = dead = cancelled = 0
        for each in held:
            blamed = marked is None or (each.id, each.token) in marked
            # A suspect runs alone: if it was the only one that ran, the crash is its own, and counts further.
            crashes = each.crashes + 1 if each.crashes and len(started) == 1 else max(each.crashes, 1)
            if each.cancel_requested:
                fates.cancel(
                    each, _unstarted(each) if not blamed else crashed(each, why), "crashed" if blamed else None
                )
                cancelled += 1
            elif not blamed:
                fates.go_back(each, _unstarted(each), each.crashes)
                released_ += 1
            elif crashes >= each.crash_limit:
                fates.die(each, self._death(write, each, why), crashes)
                dead += 1
            else:
                fates.go_back(each, crashed(each, why), crashes)
                suspect += 1
        self._ending.write(write, id, fates)
        return Buried(buried=True, suspect=suspect, released=released_, dead=dead, cancelled=cancelled)

    def _death(self, write: Write, held: Held, why: str) -> Outcome:
        if held.on_dead is None:
            return crashed(held, why)
        row = rows.jobs(write.db, self._inspect.live_record, {"ids": as_json([held.id]), "preview": WHOLE})[0]
        return crashed(held, why, follow_up(row.record(), crash(why)))


def _salvaged(parts: list[Any]) -> Beat:
    """A pulse without those of its parts that cannot be read."""
    beat, held, cancels, waiting, peers, leader, next_fire = parts
    return (
        beat if type(beat) is int else 0,
        held,
        readable(cancels, Hold),
        readable(waiting, str),
        readable(peers, Peer),
        next(iter(readable([leader], Leader)), None),
        next_fire if type(next_fire) is int else None,
    )


def _unstarted(held: Held) -> Outcome:
    return Outcome(id=held.id, token=held.token, kind=OutcomeKind.RELEASED)
