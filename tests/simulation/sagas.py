"""Jobs with steps, sleeps and waits for signals in a simulated cluster: their handler, and those who send them signals.

A saga has up to five parts, drawn by its number. All signals have one name, and each a payload of its own.
"""

import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from drumbeat import RunningJob
from drumbeat.core.job_query import JobFilter
from drumbeat.core.signals import NewSignal, SignalAnswer
from drumbeat.core.suspension import awaited_signal
from drumbeat.errors import DrumbeatError, SignalTimedOut
from drumbeat.ids import JobId
from drumbeat.store.job_reads import find_jobs
from drumbeat.store.protocol import Store
from tests.proof.history import SignalCall, StepEvent

if TYPE_CHECKING:
    from tests.simulation.cluster import Member, SimulatedRun

SIGNAL = "go"
REPETITIONS = 3
"""A client sends a signal again after an answer that was lost."""


class Part(msgspec.Struct, frozen=True):
    kind: Literal["step", "sleep", "wait"]
    name: str
    seconds: float | None
    """How long a step or sleep takes; the time-out of a wait."""


def draw_parts(seed: int, number: int) -> list[Part]:
    dice = random.Random(f"saga {seed} {number}")
    parts = []
    for place in range(dice.randint(2, 5)):
        kind: Any = dice.choice(("step", "step", "sleep", "wait"))
        seconds: float | None = dice.choice((0.0, 0.05, dice.uniform(0.1, 2.0)))
        if kind == "wait":
            seconds = dice.choice((None, None, dice.uniform(0.5, 4.0)))
        parts.append(Part(kind, f"{kind}-{place}", seconds))
    return parts


async def run_parts(run: "SimulatedRun", job: RunningJob, this: int, number: int, failures: int) -> None:
    """What the handler of a saga does; in its first attempts it fails at some place."""
    parts = draw_parts(run.plan.seed, number)
    fails_at = random.Random(f"fails {number} {job.attempt}").randrange(len(parts)) if job.attempt <= failures else None

    def note(kind: Any, part: Part, value: str = "") -> None:
        if run.is_over:
            return
        run.history.steps.append(
            StepEvent(
                job=str(job.id),
                token=job.token,
                run=this,
                at=run.loop.time(),
                kind=kind,
                name=part.name,
                value=value,
                seconds=part.seconds,
            )
        )
        run.tell(f"run={this} {kind} {part.name} {value}")

    for place, part in enumerate(parts):
        if place == fails_at:
            raise RuntimeError("fails on purpose")
        await do_part(job, part, f"{part.name}/{this}", note, run.clock.sleep)


async def do_part(
    job: RunningJob, part: Part, value: str, note: Callable[..., None], sleep: Callable[[float], Awaitable[None]]
) -> None:
    """`note`: what is written down before and after; `value`: of this run alone."""

    async def act() -> str:
        await sleep(part.seconds or 0.0)
        note("called", part, value)
        return value

    if part.kind == "step":
        note("stepped", part, await job.step(part.name, act))
    elif part.kind == "sleep":
        note("sleeps", part)
        await job.sleep(part.seconds or 0.001, name=part.name)
        note("slept", part)
    else:
        note("waits", part)
        try:
            payload = await job.wait_for(SIGNAL, str, timeout=part.seconds, name=part.name)
        except SignalTimedOut:
            note("timed out", part)
        else:
            note("got", part, payload)


async def send_signals(run: "SimulatedRun", client: "Member", job: JobId, number: int) -> None:
    """As many as it has waits, at any time, some of them late. One whose call is not answered is sent again."""
    dice = random.Random(f"signals {run.plan.seed} {number}")
    waits = [part for part in draw_parts(run.plan.seed, number) if part.kind == "wait"]
    for place in range(len(waits)):
        await run.clock.sleep(dice.choice((0.0, dice.uniform(0.0, 3.0))))
        value = f"{job} {place}"
        for _ in range(REPETITIONS):
            with suppress(DrumbeatError):
                store: Store = await client.app._internals.client.store()
                await _send(run, store, job, value)
                break
            await run.clock.sleep(0.5)


async def _send(run: "SimulatedRun", store: Store, job: JobId, value: str) -> None:
    call, place = SignalCall(job=str(job), value=value, at=run.loop.time()), len(run.history.signals)
    run.history.signals.append(call)
    answer = await store.steps.send_signal(NewSignal(id=value, job=job, name=SIGNAL, payload=f'"{value}"'))
    if answer is SignalAnswer.SENT:
        run.history.signals[place] = msgspec.structs.replace(call, answered_at=run.loop.time())
    run.tell(f"signal {value}: {answer}")


async def tend_sagas(run: "SimulatedRun", store: Store) -> None:
    """What a person does in the end: send signals to those that wait, and for whom none is there."""
    for job, value in await find_waiting(store):
        await _send(run, store, job, value)


async def find_waiting(store: Store) -> list[tuple[JobId, str]]:
    """Sagas that wait for a signal and have none, and what to send to each."""
    waiting = [
        JobId(job.id)
        for job in await find_jobs(store, JobFilter(task="saga", live=True, limit=200))
        if awaited_signal(job.suspended) is not None
    ]
    sent = await store.steps.list_signals(waiting) if waiting else {}
    return [
        (job, f"{job} late {len(signals)}")
        for job, signals in sent.items()
        if all(signal.read_by is not None for signal in signals)
    ]
