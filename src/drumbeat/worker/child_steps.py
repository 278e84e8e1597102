"""Steps of a job that runs in a child process: the worker records and loads them."""

import asyncio
import itertools
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from drumbeat.core.claim import WriteStatus
from drumbeat.core.dependencies import GraphAnswer, NewGraph, ParentResult
from drumbeat.core.signals import STALE_WAIT, SignalWait, TakenSignal
from drumbeat.core.step import NewStep, StepRecord
from drumbeat.errors import StoreError
from drumbeat.ids import JobId
from drumbeat.worker import child_protocol
from drumbeat.worker.thread_pool import ThreadPool

STALE_GRAPH = GraphAnswer(results=[], status=WriteStatus.STALE)
Answer = Future[child_protocol.StepsAnswered]


class ChildSteps:
    """A `job_steps.StepPort`. Answers arrive on the thread that reads the worker's messages."""

    def __init__(self, send: Callable[[child_protocol.StepsAsked], None]) -> None:
        self._send = send
        self._numbers = itertools.count(1)
        self._asked: dict[int, Answer] = {}
        self.threads: ThreadPool | None = None
        """Set once the loop runs."""

    async def load(self, job: JobId) -> list[StepRecord]:
        return (await asyncio.wrap_future(self._ask())).steps

    def load_sync(self, job: JobId) -> list[StepRecord]:
        return self._ask().result().steps

    async def record(self, step: NewStep) -> bool:
        return (await asyncio.wrap_future(self._ask(record=step))).is_recorded

    def record_sync(self, step: NewStep) -> bool:
        return self._ask(record=step).result().is_recorded

    async def take_signal(self, wait: SignalWait) -> TakenSignal:
        return (await asyncio.wrap_future(self._ask(take=wait))).taken or STALE_WAIT

    def take_signal_sync(self, wait: SignalWait) -> TakenSignal:
        return self._ask(take=wait).result().taken or STALE_WAIT

    async def page_results(self, job: JobId, argument: str, after: int, limit: int) -> list[ParentResult]:
        page = child_protocol.AskedPage(job, argument, after, limit)
        return (await asyncio.wrap_future(self._ask(page=page))).page

    def page_results_sync(self, job: JobId, argument: str, after: int, limit: int) -> list[ParentResult]:
        return self._ask(page=child_protocol.AskedPage(job, argument, after, limit)).result().page

    async def add_graph(self, graph: NewGraph) -> GraphAnswer:
        return (await asyncio.wrap_future(self._ask(graph=graph))).added or STALE_GRAPH

    def add_graph_sync(self, graph: NewGraph) -> GraphAnswer:
        return self._ask(graph=graph).result().added or STALE_GRAPH

    async def run_in_thread(self, call: Callable[[], Any]) -> Any:
        assert self.threads is not None
        return await self.threads.run(call)

    def on_answer(self, answer: child_protocol.StepsAnswered) -> None:
        asked = self._asked.pop(answer.number, None)
        if asked is None or not asked.set_running_or_notify_cancel():
            return
        if answer.refusal is not None:
            asked.set_exception(answer.refusal.to_error())
        elif answer.error is None:
            asked.set_result(answer)
        else:
            asked.set_exception(StoreError(answer.error))

    def _ask(
        self,
        *,
        record: NewStep | None = None,
        take: SignalWait | None = None,
        page: child_protocol.AskedPage | None = None,
        graph: NewGraph | None = None,
    ) -> Answer:
        number, answer = next(self._numbers), Answer()
        self._asked[number] = answer
        self._send(child_protocol.StepsAsked(number, record, take, page, graph))
        return answer
