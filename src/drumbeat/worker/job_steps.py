"""The steps of one run of a job: `current_job().step(...)`. Used by the worker and by its child processes.

A step is known by its name. Its result goes on record under the claim of this run; a later run of the same job gets it from
there, and does not call the function again. Records are read once, by the first step of a run that is not the job's first.

    JobSteps (one for each run)  -->  StepPort   worker: step_recorder.py, which batches the steps of all runs
                                                 child process: messages to its worker (child_protocol.py)
"""

import inspect
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, NoReturn, Protocol

from drumbeat.codec import JsonCodec, Undecodable, Unstorable, decode_result, return_type
from drumbeat.context import Aborted, AbortReason, RunningJob
from drumbeat.core.claim import ClaimRef, WriteStatus
from drumbeat.core.dependencies import GraphAnswer, NewGraph, ParentResult
from drumbeat.core.job import NewJob
from drumbeat.core.signals import SignalWait, TakenSignal
from drumbeat.core.step import MAX_STEP_NAME, NewStep, StepKind, StepRecord
from drumbeat.core.suspension import FOREVER_US, Suspension
from drumbeat.durations import to_us
from drumbeat.errors import ClaimLost, SignalTimedOut, StepError
from drumbeat.handle import JobHandle
from drumbeat.ids import InstanceId, JobId
from drumbeat.names import short_repr
from drumbeat.protocols import Enqueuer
from drumbeat.step_calls import CURRENT_STEP, CurrentStep, Suspended
from drumbeat.store.protocol import Transactional
from drumbeat.worker.added_jobs import build_graph, handles_of, handles_of_ids
from drumbeat.worker.result import ResultEncoder
from drumbeat.worker.step_budget import StepBudget

log = logging.getLogger(__name__)

StepId = tuple[StepKind, str]


class StepPort(Protocol):
    """How the steps of a run reach the store. The `_sync` forms are for threads without a loop."""

    async def load(self, job: JobId) -> list[StepRecord]: ...

    def load_sync(self, job: JobId) -> list[StepRecord]: ...

    async def record(self, step: NewStep) -> bool:
        """False: the claim is no longer current."""
        ...

    def record_sync(self, step: NewStep) -> bool: ...

    async def take_signal(self, wait: SignalWait) -> TakenSignal: ...

    def take_signal_sync(self, wait: SignalWait) -> TakenSignal: ...

    async def page_results(self, job: JobId, argument: str, after: int, limit: int) -> list[ParentResult]: ...

    def page_results_sync(self, job: JobId, argument: str, after: int, limit: int) -> list[ParentResult]: ...

    async def add_graph(self, graph: NewGraph) -> GraphAnswer:
        """Store jobs in the workflow of the job that runs, with graph.step."""
        ...

    def add_graph_sync(self, graph: NewGraph) -> GraphAnswer: ...

    async def run_in_thread(self, call: Callable[[], Any]) -> Any: ...


class StepContext(NamedTuple):
    """What the steps of all runs share."""

    port: StepPort
    transactional: Transactional
    identity: Callable[[], InstanceId]
    now: Callable[[], int]
    encode: ResultEncoder
    codec: JsonCodec
    enqueuer: Enqueuer


class JobSteps:
    """A `context.RunSteps`."""

    def __init__(self, job: RunningJob, context: StepContext) -> None:
        self._job = job
        self._context = context
        self._port = context.port
        self._claim = ClaimRef(job.id, job.token)
        claimed = job.claimed
        self._must_load = bool(claimed.has_run or claimed.failures or claimed.crashes or claimed.replays)
        self._known: dict[StepId, StepRecord] = {}
        self._used: set[StepId] = set()
        self._in_flight: list[str] = []
        self._budget = StepBudget(job.id)
        self.suspended: Suspended | None = None

    async def step(self, name: str, function: Callable[..., Any], args: Sequence[Any], kwargs: Any, conn: Any) -> Any:
        returns = self._begin(name, function)
        if self._must_load:
            self._learn(await self._port.load(self._job.id))
        if (known := self._known.get((StepKind.STEP, name))) is not None:
            return self._decode(known, returns)
        if conn is not None:
            self._context.transactional.check_connection(conn, sync=False)
        started = self._context.now()
        with self._inside(name):
            if inspect.iscoroutinefunction(function):
                value = await function(*args, **kwargs)
            else:
                value = await self._port.run_in_thread(lambda: function(*args, **kwargs))
                if inspect.isawaitable(value):
                    value = await value
        step, kept = self._build(name, value, started, returns)
        if conn is None:
            self._settle(await self._port.record(step))
            return kept
        try:
            await self._context.transactional.record_step(conn, self._context.identity(), step)
        except ClaimLost as lost:
            self._settle(False, lost)
        return kept

    def step_sync(self, name: str, function: Callable[..., Any], args: Sequence[Any], kwargs: Any, conn: Any) -> Any:
        if inspect.iscoroutinefunction(function):
            raise StepError(self._job.id, name, "has an async function: use `await job.step(...)` in an async handler")
        returns = self._begin(name, function)
        if self._must_load:
            self._learn(self._port.load_sync(self._job.id))
        if (known := self._known.get((StepKind.STEP, name))) is not None:
            return self._decode(known, returns)
        if conn is not None:
            self._context.transactional.check_connection(conn, sync=True)
        started = self._context.now()
        with self._inside(name):
            value = function(*args, **kwargs)
        step, kept = self._build(name, value, started, returns)
        if conn is None:
            self._settle(self._port.record_sync(step))
            return kept
        try:
            self._context.transactional.record_step_sync(conn, self._context.identity(), step)
        except ClaimLost as lost:
            self._settle(False, lost)
        return kept

    async def add(self, name: str, calls: Iterable[NewJob[Any]]) -> list[JobHandle[Any]]:
        self._enter(StepKind.STEP, name)
        if self._must_load:
            self._learn(await self._port.load(self._job.id))
        if (known := self._known.get((StepKind.STEP, name))) is not None:
            return self._handles_on_record(known)
        graph = self._build_graph(name, calls)
        with self._inside(name):
            return self._end_add(graph, await self._port.add_graph(graph))

    def add_sync(self, name: str, calls: Iterable[NewJob[Any]]) -> list[JobHandle[Any]]:
        self._enter(StepKind.STEP, name)
        if self._must_load:
            self._learn(self._port.load_sync(self._job.id))
        if (known := self._known.get((StepKind.STEP, name))) is not None:
            return self._handles_on_record(known)
        graph = self._build_graph(name, calls)
        with self._inside(name):
            return self._end_add(graph, self._port.add_graph_sync(graph))

    def _build_graph(self, name: str, calls: Iterable[NewJob[Any]]) -> NewGraph:
        graph = build_graph(self._context.enqueuer, self._claim, name, calls, self._context.now())
        assert graph.step is not None
        self._budget.charge(name, len(graph.step.result))
        return graph

    def _end_add(self, graph: NewGraph, answer: GraphAnswer) -> list[JobHandle[Any]]:
        self._settle(answer.status is not WriteStatus.STALE)
        return handles_of(self._context.enqueuer, answer)

    def _handles_on_record(self, known: StepRecord) -> list[JobHandle[Any]]:
        return handles_of_ids(self._context.enqueuer, self._decode(known, list[str]))

    async def sleep(self, delay_us: int, name: str) -> None:
        self._enter(StepKind.SLEEP, name)
        if self._must_load:
            self._learn(await self._port.load(self._job.id))
        self._sleep(delay_us, name)

    def sleep_sync(self, delay_us: int, name: str) -> None:
        self._enter(StepKind.SLEEP, name)
        if self._must_load:
            self._learn(self._port.load_sync(self._job.id))
        self._sleep(delay_us, name)

    def _sleep(self, delay_us: int, name: str) -> None:
        known = self._known.get((StepKind.SLEEP, name))
        until = None if known is None or known.until is None else to_us(known.until)
        if until is None or until > self._now():
            if known is None:
                self._budget.charge(name, 0)
            self._suspend(Suspension(kind=StepKind.SLEEP, name=name, until=until), delay_us)

    async def wait_for(self, signal: str, type: Any, timeout_us: int | None, name: str) -> Any:
        wait = self._begin_wait(signal, name)
        if self._must_load:
            self._learn(await self._port.load(self._job.id))
        taken = self._known_end(wait) or await self._port.take_signal(wait)
        return self._end_wait(taken, wait, type, timeout_us)

    def wait_for_sync(self, signal: str, type: Any, timeout_us: int | None, name: str) -> Any:
        wait = self._begin_wait(signal, name)
        if self._must_load:
            self._learn(self._port.load_sync(self._job.id))
        taken = self._known_end(wait) or self._port.take_signal_sync(wait)
        return self._end_wait(taken, wait, type, timeout_us)

    def _begin_wait(self, signal: str, name: str) -> SignalWait:
        self._enter(StepKind.WAIT, name)
        self._check_nothing_runs(name)
        return SignalWait(claim=self._claim, name=name, signal=signal)

    def _known_end(self, wait: SignalWait) -> TakenSignal | None:
        """What is on record of it. A new one is counted before it takes a signal, which would be lost to an error."""
        known = self._known.get((StepKind.WAIT, wait.name))
        if known is None:
            self._budget.charge(wait.name, 0)
        return None if known is None or known.finished_at is None else TakenSignal(is_over=True, payload=known.result)

    def _end_wait(self, taken: TakenSignal, wait: SignalWait, type: Any, timeout_us: int | None) -> Any:
        known = self._known.get((StepKind.WAIT, wait.name))
        self._settle(taken.is_current)
        if not taken.is_over:
            until = FOREVER_US if timeout_us is None else None
            if known is not None:  # woken too early
                until = FOREVER_US if known.until is None else to_us(known.until)
            suspension = Suspension(kind=StepKind.WAIT, name=wait.name, signal=wait.signal, until=until)
            self._suspend(suspension, timeout_us or 0)
        if taken.payload is None:
            raise SignalTimedOut(self._job.id, wait.signal)
        try:
            return decode_result(taken.payload, type, self._context.codec)
        except Undecodable as error:
            problem = f"got a signal {wait.signal!r} whose payload is not of the type that is waited for: {error}"
            raise StepError(self._job.id, wait.name, problem) from error

    def _check_nothing_runs(self, name: str) -> None:
        if self._in_flight:
            problem = f"cannot be made while step {self._in_flight[0]!r} runs: the run would end in the middle of it"
            raise StepError(self._job.id, name, problem)

    def _suspend(self, suspension: Suspension, delay_us: int) -> NoReturn:
        """End this run. It sticks: what the handler asks for afterwards raises it again."""
        self._check_nothing_runs(suspension.name)
        self.suspended = Suspended(suspension, delay_us)
        raise self.suspended

    def _now(self) -> int:
        """By the store's clock, and never before the claim: what made the job due has passed."""
        return max(self._context.now(), self._claim.token)

    def warn_of_unused(self) -> None:
        """A step on record that a handler no longer asks for was probably renamed, and has been done twice."""
        if unused := sorted(name for kind, name in self._known.keys() - self._used if kind is StepKind.STEP):
            facts = {"job": self._job.id, "task": self._job.task, "steps": ", ".join(unused)}
            log.warning("a job succeeded without asking for steps that are on record", extra=facts)

    def _begin(self, name: str, function: Callable[..., Any]) -> Any:
        """Check what can be checked before anything is called. Returns the type of the result."""
        self._enter(StepKind.STEP, name)
        if not callable(function):
            raise StepError(self._job.id, name, f"needs a function to call, not {short_repr(function)}")
        return return_type(function, self._context.codec)

    def _enter(self, kind: StepKind, name: str) -> None:
        if self.suspended is not None:
            raise Suspended(self.suspended.suspension, self.suspended.delay_us)
        self._job.check()
        given: object = name
        if not isinstance(given, str) or not 0 < len(name) <= MAX_STEP_NAME or not name.isprintable():
            problem = f"must have a name of 1 to {MAX_STEP_NAME} printable characters, not {short_repr(name)}"
            raise StepError(self._job.id, "", problem)
        if (outer := CURRENT_STEP.get(None)) is not None:
            raise StepError(self._job.id, name, f"is inside of step {outer.name!r}: steps cannot be nested")
        if (kind, name) in self._used:
            hint = f'give each its own name, such as f"{name}:{{number}}"'
            if kind is not StepKind.STEP:
                hint = f"give each its own: {'sleep' if kind is StepKind.SLEEP else 'wait_for'}(..., name=...)"
            raise StepError(self._job.id, name, f"is there twice in one run: {hint}")
        self._used.add((kind, name))

    def _learn(self, steps: Sequence[StepRecord]) -> None:
        if self._must_load:  # of several steps at once, the first answer counts
            self._must_load = False
            self._known = {(step.kind, step.name): step for step in steps} | self._known
            self._budget.add(steps)

    @contextmanager
    def _inside(self, name: str) -> Iterator[None]:
        self._in_flight.append(name)
        token = CURRENT_STEP.set(CurrentStep(name, f"{self._job.id}:{name}"))
        try:
            yield
        finally:
            CURRENT_STEP.reset(token)
            self._in_flight.remove(name)

    def _decode(self, known: StepRecord, returns: Any) -> Any:
        try:
            return decode_result(known.result or "null", returns, self._context.codec)
        except Undecodable as error:
            problem = f"has a result on record that is not of the type that its function returns: {error}"
            raise StepError(self._job.id, known.name, problem) from error

    def _build(self, name: str, value: Any, started: int, returns: Any) -> tuple[NewStep, Any]:
        """The record, and the value as later runs will read it."""
        if (reason := self._job.aborted.reason) is not None and reason is not AbortReason.DRAINING:
            raise Aborted(reason)  # a thread that outlived its run: nothing waits for its result
        try:
            text = self._context.encode(value)
            kept = decode_result(text, returns, self._context.codec)
        except Unstorable as error:
            raise StepError(self._job.id, name, f"returned what cannot be kept: {error.reason}") from error
        except Undecodable as error:
            raise StepError(self._job.id, name, f"returned another type than it says: {error}") from error
        self._budget.charge(name, len(text))
        step = NewStep(
            claim=self._claim, name=name, started_at=started, finished_at=max(started, self._context.now()), result=text
        )
        return step, kept

    def _settle(self, is_recorded: bool, cause: BaseException | None = None) -> None:
        """A lost claim ends the attempt as a lost lease does."""
        if not is_recorded:
            self._job.aborted.set(AbortReason.LEASE_LOST)
            raise Aborted(AbortReason.LEASE_LOST) from cause
