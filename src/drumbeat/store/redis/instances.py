"""Who lives, on Redis. The contract is in `store.protocol.Instances`.

A burial makes dead letters, whose follow-ups are made here and not by a script. So the script looks first: if a follow-up is
missing it does nothing and says of which job, and is called again.
"""

import logging
from collections.abc import Sequence

import msgspec

from drumbeat.errors import StoreUnavailable
from drumbeat.ids import InstanceId, packed, unpacked
from drumbeat.model.death import follow_up
from drumbeat.model.instance import Buried, Leader, NewInstance, Peer, Pulse
from drumbeat.model.job import Failure, Hold
from drumbeat.store.outcomes import crash
from drumbeat.store.redis import adding, rows, schema, texts
from drumbeat.store.redis.connections import Link
from drumbeat.store.redis.line import Value

log = logging.getLogger(__name__)

_TRIES = 8


class RedisInstances:
    def __init__(self, link: Link) -> None:
        self._link = link
        self._has_told = False

    async def register(self, instance: NewInstance) -> None:
        await self._tell()
        await self._link.run("instances_register", instance.id, msgspec.json.encode(instance), *schema.description())

    async def beat(self, id: InstanceId, running: int, *, lead: int | None = None) -> Pulse:
        now, *told = await self._link.run("instances_beat", id, running, "" if lead is None else lead)
        if not told:
            return Pulse(alive=False, beat=0, now=now, running=0, cancels=[], waiting=[], peers=[])
        beat, held, cancels, waiting, peers, leader, next_fire = told
        return Pulse(
            alive=True,
            beat=beat,
            now=now,
            running=held,
            # A score may be written as 1.7e+15; it is exact all the same.
            cancels=[
                Hold(unpacked(id), texts.number_or_0(token)) for id, token in sorted(_pairs(cancels)) if len(id) == 16
            ],
            waiting=sorted(why.decode("utf-8", "replace") for why in waiting),
            peers=[Peer(_name(id), texts.number_or_0(count)) for id, count in sorted(_pairs(peers))],
            leader=Leader(instance=_name(leader[0]), term=texts.number_or_0(leader[1])) if leader else None,
            next_fire=next_fire,
        )

    async def bury(self, id: InstanceId, *, beat: int | None, started: Sequence[Hold] | None, why: str) -> Buried:
        error = crash(why)
        known: list[Value] = [id, "" if beat is None else beat, why, rows.as_json(error)]
        marks: list[Value] = []
        if started is not None:
            marks = ["started", *(value for hold in started for value in (packed(hold.id), hold.token))]
        follow_ups: dict[bytes, list[Value]] = {}
        for _ in range(_TRIES):
            given = [value for job, values in follow_ups.items() for value in (job, *values)]
            state, *facts = await self._link.run("instances_bury", *known, len(follow_ups), *given, *marks)
            if state == 0:
                return Buried(buried=False)
            if state == 1:
                suspect, released, dead, cancelled = facts
                return Buried(buried=True, suspect=suspect, released=released, dead=dead, cancelled=cancelled)
            follow_ups |= await self._follow_ups(facts, error)
        raise StoreUnavailable(f"{self._link.address.shown}: the jobs of instance {id} changed {_TRIES} times")

    async def leave(self, id: InstanceId, why: str) -> None:
        await self._link.run("instances_leave", id, why)

    async def leave_rooms(self, id: InstanceId) -> None:
        await self._link.run("instances_leave_rooms", id)

    async def forget(self, before: int) -> int:
        forgotten: int = await self._link.run("instances_forget", before)
        return forgotten

    async def _follow_ups(self, ids: Sequence[bytes], error: Failure) -> dict[bytes, list[Value]]:
        _, *answers = await self._link.run("inspect_records", *ids)
        found: dict[bytes, list[Value]] = {}
        for id, answer in zip(ids, answers, strict=True):
            if answer is not None and (job := follow_up(rows.job(unpacked(id), answer), error)) is not None:
                found[id] = adding.follow_up(job)[1:]
        return found

    async def _tell(self) -> None:
        """Say once what this server's settings mean for acknowledged jobs: whoever registers is going to work on them."""
        if self._has_told:
            return
        safe, promise = await schema.promise(self._link)
        self._has_told = True
        log.log(logging.INFO if safe else logging.WARNING, "what the server keeps", extra={"persistence": promise})


def _name(id: bytes) -> InstanceId:
    return InstanceId(id.decode("utf-8", "replace"))


def _pairs(flat: list[bytes]) -> list[tuple[bytes, bytes]]:
    return list(zip(flat[::2], flat[1::2], strict=True))
