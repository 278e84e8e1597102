"""Records what nodes ask of the store and what they are told: claims, releases, heartbeats, declared deaths.

A call is seen twice: where the node makes it, and where the store performs it. Between the two is the network.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from drumbeat.core.claim import ClaimResult
from drumbeat.core.job import OutcomeKind
from drumbeat.errors import DrumbeatError
from tests.proof.history import BeatSent, ClaimMade, DeathDeclared, History, ReleaseSent
from tests.simulation.loop import SimulatedLoop

Call = Callable[..., Awaitable[Any]]


class CallRecorder:
    def __init__(self, loop: SimulatedLoop, history: History, tell: Callable[[str], None]) -> None:
        self._loop = loop
        self._history = history
        self._tell = tell
        self._claims: dict[tuple[str, int], ClaimMade] = {}

    def at_store(self, node: str, call: str, real: Call) -> Call:
        """`real` with a record of what the store does."""
        if call != "jobs.report_and_claim":
            return real

        async def perform(instance: Any, outcomes: Any, claim: Any) -> ClaimResult:
            answer: ClaimResult = await real(instance, outcomes, claim)
            now = self._loop.time()
            for job in answer.jobs:
                self._claims[job.id, job.token] = ClaimMade(
                    job=str(job.id), token=job.token, instance=str(instance), node=node, at=now
                )
            return answer

        return perform

    def at_node(self, node: str, call: str, send: Call) -> Call:
        """`send` with a record of what the node asks and is told."""
        if call == "jobs.report_and_claim":
            return self._record_claims(node, send)
        if call == "instances.heartbeat":
            return self._record_beats(node, send)
        if call == "instances.declare_dead":
            return self._record_deaths(node, send)
        return send

    def finish(self) -> None:
        self._history.claims = list(self._claims.values())

    def _record_claims(self, node: str, send: Call) -> Call:
        async def report_and_claim(instance: Any, outcomes: Any, claim: Any) -> ClaimResult:
            now = self._loop.time()
            for outcome in outcomes:
                if outcome.kind is OutcomeKind.RELEASED:
                    self._history.releases.append(
                        ReleaseSent(job=str(outcome.id), token=outcome.token, node=node, at=now)
                    )
            answer: ClaimResult = await send(instance, outcomes, claim)
            now = self._loop.time()
            for job in answer.jobs:
                made = self._claims[job.id, job.token]
                self._claims[job.id, job.token] = msgspec.structs.replace(made, answered_at=now)
            return answer

        return report_and_claim

    def _record_beats(self, node: str, send: Call) -> Call:
        async def heartbeat(instance: Any, *args: Any, **kwargs: Any) -> Any:
            beat = BeatSent(instance=str(instance), node=node, asked_at=self._loop.time(), answered_at=None)
            try:
                reply = await send(instance, *args, **kwargs)
            except (DrumbeatError, asyncio.CancelledError):
                self._history.beats.append(beat)
                raise
            told = msgspec.structs.replace(beat, answered_at=self._loop.time(), is_alive=reply.alive)
            self._history.beats.append(told)
            return reply

        return heartbeat

    def _record_deaths(self, node: str, send: Call) -> Call:
        async def declare_dead(instance: Any, *, started: Any, **options: Any) -> Any:
            asked_at = self._loop.time()
            report = await send(instance, started=started, **options)
            if report.declared and started is None:  # else the instance itself says that it has failed
                self._history.deaths.append(DeathDeclared(instance=str(instance), by=node, at=asked_at))
                self._tell(f"{node} declares {instance} dead")
            return report

        return declare_dead
