"""Faults of a simulated cluster: drawn before the run, so that leaving one out changes nothing of the others.

NodeFault    kill, stop (an orderly shutdown) or pause of a node; a step of the machine's wall clock; a power cut
CallFault    while it lasts, calls to the store fail or are delayed, each with a probability
"""

import asyncio
import random
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Literal

import msgspec

from drumbeat.errors import StoreFull, StoreUnavailable
from drumbeat.store.protocol import Store
from drumbeat.testing.store_wrapper import StoreCall, WrappedStore
from tests.simulation.call_recorder import CallRecorder
from tests.simulation.loop import Lane, SimulatedClock, SimulatedLoop, spawn_on

CallFaultKind = Literal[
    "lost request", "lost answer", "late request", "late answer", "slow", "ghost request", "outage", "repeated", "full"
]
NodeFaultKind = Literal["kill", "stop", "pause", "clock", "power"]
REPEATABLE = {
    "jobs.add",
    "dependencies.add",
    "steps.record",
    "steps.send_signal",
    "steps.take_signal",
    "locks.acquire",
    "locks.release",
    "schedules.fire",
    "instances.deregister",
}
"""What a client repeats after a lost answer: so a repetition at any time must change nothing. But a unique job that was
refused is added by a repetition when the holder of its key has ended, as it should."""
GROWING = {"jobs.add", "dependencies.add", "steps.record", "steps.send_signal", "schedules.fire", "rooms.send"}
"""What a full store refuses."""


class NodeFault(msgspec.Struct, frozen=True, kw_only=True):
    at: float
    kind: NodeFaultKind
    node: int
    seconds: float
    """Until the node is started again or goes on; of a clock step: by how much."""


class CallFault(msgspec.Struct, frozen=True, kw_only=True):
    start: float
    end: float
    kind: CallFaultKind
    rate: float
    node: int | None
    call: str | None
    """Such as "jobs.report_and_claim"; "locks." for all of a part; None: all."""
    delay: float
    seed: int

    @property
    def effect_ends(self) -> float:
        """When the last call has been answered that it concerned."""
        return self.end + (2 * self.delay if self.kind == "slow" else self.delay)

    def concerns(self, node: int, call: str, now: float) -> bool:
        return (
            self.start <= now < self.end
            and (self.node is None or self.node == node)
            and (self.call is None or self.call == call or (self.call[-1] == "." and call.startswith(self.call)))
        )


class Network:
    """What lies between the nodes and the store: applies the call faults."""

    def __init__(
        self,
        loop: SimulatedLoop,
        clock: SimulatedClock,
        lane: Lane,
        faults: Sequence[CallFault],
        dice: Sequence[random.Random],
    ) -> None:
        self._loop = loop
        self._clock = clock
        self._lane = lane
        self._faults = list(zip(faults, dice, strict=True))
        self.applied = 0

    def fault_of(self, node: int, call: str) -> tuple[CallFault, random.Random] | None:
        now = self._loop.time()
        for fault, dice in self._faults:
            if fault.concerns(node, call, now) and dice.random() < fault.rate:
                self.applied += 1
                return fault, dice
        return None

    async def call(self, fault: CallFault, dice: random.Random, call: str, real: Any, args: Any, kwargs: Any) -> Any:
        kind = fault.kind
        if kind == "outage" or kind == "lost request":
            raise StoreUnavailable(f"{kind} on purpose")
        if kind == "full":
            if call in GROWING:
                raise StoreFull("full on purpose")
            return await real(*args, **kwargs)
        if kind == "repeated":
            if call in REPEATABLE and not (call == "jobs.add" and any(job.unique for job in args[0])):
                again = self._send(real, args, kwargs, before=dice.uniform(0.0, fault.delay))
                self._loop.bury(again)
            return await real(*args, **kwargs)
        if kind == "ghost request":
            # The connection broke: the caller repeats the call, and the first one arrives all the same, perhaps much later.
            # A message of a room may then be heard twice, which is no promise.
            if not call.startswith("rooms."):
                self._loop.bury(self._send(real, args, kwargs, before=dice.uniform(0.0, fault.delay)))
            raise StoreUnavailable("the connection was cut on purpose")
        before = dice.uniform(0.0, fault.delay) if kind in ("late request", "slow") else 0.0
        after = dice.uniform(0.0, fault.delay) if kind in ("late answer", "slow") else 0.0
        # On the network's own lane: a request on its way arrives, whatever becomes of the node that sent it.
        answer = await asyncio.shield(self._send(real, args, kwargs, before=before))
        await self._clock.sleep(after)
        if kind == "lost answer":
            raise StoreUnavailable("the answer was lost on purpose")
        return answer

    def _send(self, real: Any, args: Any, kwargs: Any, *, before: float) -> "asyncio.Task[Any]":
        async def perform() -> Any:
            await self._clock.sleep(before)
            return await real(*args, **kwargs)

        task = spawn_on(self._loop, self._lane, perform())
        task.add_done_callback(_retrieve)
        return task


def _retrieve(task: "asyncio.Task[Any]") -> None:
    """Its sender may be dead or have given up: the exception is nobody's."""
    with suppress(BaseException):
        task.exception()


class NetworkedStore(WrappedStore):
    """A store of a node, behind the network."""

    def __init__(self, store: Store, network: Network, node: int, label: str, recorder: CallRecorder) -> None:
        """`label`: the node's name, another one after each start."""

        def wrap(call: str, real: StoreCall) -> StoreCall:
            performed = recorder.at_store(label, call, real)

            async def send(*args: Any, **kwargs: Any) -> Any:
                drawn = network.fault_of(node, call)
                if drawn is None:
                    return await performed(*args, **kwargs)
                return await network.call(*drawn, call, performed, args, kwargs)

            return recorder.at_node(label, call, send)

        super().__init__(store, wrap)
