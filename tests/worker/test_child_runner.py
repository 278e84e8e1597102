"""The timeout of a job in a child process."""

import asyncio
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from drumbeat.clock import FakeClock
from drumbeat.context import RunningJob
from drumbeat.ids import InstanceId
from drumbeat.settings import Settings
from drumbeat.worker.active_runs import HandlerRun
from drumbeat.worker.child_pool import ChildRun
from drumbeat.worker.child_runner import ChildRunner
from drumbeat.worker.result import HandlerResult, ResultKind
from drumbeat.worker.task_spec import build_task_specs
from tests.apps.handlers import app
from tests.waiting import until
from tests.worker.test_child_pool import claimed

DONE = HandlerResult(kind=ResultKind.RETURNED, result="5")


class SlowLink:
    """A child whose handler took so long, and whose result is late."""

    def __init__(self, took: float) -> None:
        self._took = took
        self.has_ended = False
        self.result: asyncio.Future[HandlerResult] = asyncio.get_running_loop().create_future()

    async def run(self, run: ChildRun) -> HandlerResult:
        run.on_started()
        run.on_ended(self._took)
        self.has_ended = True
        return await self.result


@pytest.mark.parametrize(("took", "is_in_time"), [(0.5, True), (1.5, False)])
async def test_the_timeout_counts_to_the_end_of_the_handler_in_the_child(took: float, is_in_time: bool) -> None:
    clock, settings = FakeClock(), Settings()
    core: Any = SimpleNamespace(settings=settings, clock=clock, identity=lambda: InstanceId(""))
    link: Any = SlowLink(took)
    reporter: Any = SimpleNamespace(put_progress=lambda job, value: None)
    job = msgspec.structs.replace(claimed("add", one=2, two=3), timeout=1_000_000)
    spec = build_task_specs(app._internals.registry, settings)["add"]
    no_completer: Any = None
    no_steps: Any = None
    running = RunningJob(job, reporter.put_progress, no_completer, clock.now_us, 0)

    async def serve() -> HandlerResult:
        slot = asyncio.current_task()
        assert slot is not None
        run = HandlerRun(jobs=[job], task="add", running=running, slot=slot, started_us=0, in_thread=False)
        return await ChildRunner(core, link, reporter, no_steps).run(run, spec)

    async with asyncio.TaskGroup() as group:
        slot = group.create_task(serve())
        await until(lambda: link.has_ended, what="the end of the handler")
        await clock.advance(2)
        if not slot.cancelling():
            link.result.set_result(DONE)
    assert slot.cancelled() is not is_in_time
