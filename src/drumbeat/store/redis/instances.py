"""Who lives, on Redis. The contract is in `store.protocol.Instances`."""

import logging

import msgspec

from drumbeat.ids import InstanceId, unpacked
from drumbeat.model.instance import NewInstance, Peer, Pulse
from drumbeat.model.job import Hold
from drumbeat.store.redis import schema
from drumbeat.store.redis.connections import Link

log = logging.getLogger(__name__)


class RedisInstances:
    def __init__(self, link: Link) -> None:
        self._link = link
        self._has_told = False

    async def register(self, instance: NewInstance) -> None:
        await self._tell()
        await self._link.run("instances_register", instance.id, msgspec.json.encode(instance), *schema.description())

    async def beat(self, id: InstanceId, running: int) -> Pulse:
        now, *told = await self._link.run("instances_beat", id, running)
        if not told:
            return Pulse(alive=False, beat=0, now=now, running=0, cancels=[], waiting=[], peers=[])
        beat, held, cancels, waiting, peers = told
        return Pulse(
            alive=True,
            beat=beat,
            now=now,
            running=held,
            cancels=[Hold(unpacked(id), int(token)) for id, token in _pairs(cancels)],
            waiting=[why.decode() for why in waiting],
            peers=[Peer(InstanceId(id.decode()), int(count)) for id, count in _pairs(peers)],
        )

    async def forget(self, before: int) -> int:
        forgotten: int = await self._link.run("instances_forget", before)
        return forgotten

    async def _tell(self) -> None:
        """Say once what this server's settings mean for acknowledged jobs: whoever registers is going to work on them."""
        if self._has_told:
            return
        safe, promise = await schema.promise(self._link)
        self._has_told = True
        log.log(logging.INFO if safe else logging.WARNING, "what the server keeps", extra={"persistence": promise})


def _pairs(flat: list[bytes]) -> list[tuple[bytes, bytes]]:
    return list(zip(flat[::2], flat[1::2], strict=True))
