"""Jobs with steps, sleeps and waits under chaos: what their handlers write into the journal, and who sends them signals.

The parts of a saga are those of the simulation, drawn by its number.
"""

import random
from typing import Any

from drumbeat import RunningJob
from drumbeat.clock import SYSTEM
from drumbeat.core.signals import NewSignal, SignalAnswer
from drumbeat.errors import JobEnded, StoreUnavailable
from drumbeat.ids import JobId
from drumbeat.store.protocol import Store
from tests.chaos import journal
from tests.simulation.sagas import SIGNAL, Part, do_part, draw_parts, find_waiting

SEED = 0


async def perform_parts(job: RunningJob, number: int, run: int) -> None:
    def note(kind: Any, part: Part, value: str = "") -> None:
        facts = {"job": str(job.id), "token": job.token, "run": run, "name": part.name, "value": value}
        journal.write("part", kind=kind, seconds=part.seconds, **facts)

    for part in draw_parts(SEED, number):
        await do_part(job, part, f"{part.name}/{run}", note, SYSTEM.sleep)


async def send_signals(app: Any, job: JobId, number: int, dice: random.Random) -> None:
    """As many as it has waits, at any time, some of them late. One whose call is not answered is sent again."""
    waits = [part for part in draw_parts(SEED, number) if part.kind == "wait"]
    for place in range(len(waits)):
        await SYSTEM.sleep(dice.choice((0.0, dice.uniform(0.0, 3.0))))
        value = f"{job} {place}"
        journal.write("signals", job=str(job), value=value)
        while True:
            try:
                await app.signal(job, SIGNAL, value, id=value)
            except StoreUnavailable:
                await SYSTEM.sleep(dice.uniform(0.05, 0.3))
            except JobEnded:
                return
            else:
                journal.write("signal stored", job=str(job), value=value)
                break


async def tend_sagas(store: Store) -> None:
    """What a person does in the end: send signals to those that wait, and for whom none is there."""
    for job, value in await find_waiting(store):
        journal.write("signals", job=str(job), value=value)
        signal = NewSignal(id=value, job=job, name=SIGNAL, payload=f'"{value}"')
        if await store.steps.send_signal(signal) is SignalAnswer.SENT:
            journal.write("signal stored", job=str(job), value=value)
