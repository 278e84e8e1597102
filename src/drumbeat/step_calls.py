"""What a handler calls for steps: methods of `RunningJob`, and `current_step()`. What they do is in worker/job_steps.py."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, NamedTuple, ParamSpec, Protocol, TypeVar, overload

from drumbeat.core.step import MAX_STEP_NAME
from drumbeat.core.suspension import Suspension
from drumbeat.durations import Duration, microseconds
from drumbeat.errors import InvalidArguments, NotInJob
from drumbeat.loop_check import check_no_loop
from drumbeat.names import short_repr

if TYPE_CHECKING:
    from drumbeat.core.job import NewJob
    from drumbeat.handle import JobHandle, SyncJobHandle

R = TypeVar("R")
T = TypeVar("T")
P = ParamSpec("P")


class Suspended(BaseException):
    """Raised by `sleep()` and `wait_for()`: ends this run, and a later run of the job goes on.

    Derives from BaseException so that a handler's own `except Exception` does not swallow it. A handler that catches it has
    failed.
    """

    def __init__(self, suspension: Suspension, delay_us: int) -> None:
        super().__init__(suspension.label)
        self.suspension = suspension
        self.delay_us = delay_us


class RunSteps(Protocol):
    """The steps of one run."""

    suspended: Suspended | None
    """By what the run was suspended; None: it was not."""

    def warn_of_unused(self) -> None: ...

    async def add(self, name: str, calls: Iterable[NewJob[Any]]) -> list[JobHandle[Any]]: ...

    def add_sync(self, name: str, calls: Iterable[NewJob[Any]]) -> list[JobHandle[Any]]: ...

    async def sleep(self, delay_us: int, name: str) -> None: ...

    def sleep_sync(self, delay_us: int, name: str) -> None: ...

    async def wait_for(self, signal: str, type: Any, timeout_us: int | None, name: str) -> Any: ...

    def wait_for_sync(self, signal: str, type: Any, timeout_us: int | None, name: str) -> Any: ...

    async def step(
        self, name: str, function: Callable[..., Any], args: Sequence[Any], kwargs: Any, conn: Any
    ) -> Any: ...

    def step_sync(
        self, name: str, function: Callable[..., Any], args: Sequence[Any], kwargs: Any, conn: Any
    ) -> Any: ...


class StepCalls:
    """The part of `RunningJob` that is about steps."""

    __slots__ = ()
    steps: RunSteps | None

    def _open_steps(self) -> RunSteps:
        raise NotImplementedError

    @overload
    async def step(
        self, name: str, function: Callable[..., Awaitable[R]], /, *args: Any, conn: Any, **kwargs: Any
    ) -> R: ...

    @overload
    async def step(self, name: str, function: Callable[..., R], /, *args: Any, conn: Any, **kwargs: Any) -> R: ...

    @overload
    async def step(self, name: str, function: Callable[P, Awaitable[R]], /, *args: P.args, **kwargs: P.kwargs) -> R: ...

    @overload
    async def step(self, name: str, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R: ...

    async def step(
        self, name: str, function: Callable[..., Any], /, *args: Any, conn: Any = None, **kwargs: Any
    ) -> Any:
        """Call a function and put its result on record, before this returns. If the job runs again, after a failure, a crash or
        a sleep, the function is not called again: the result on record is returned, decoded by the function's annotation.

            receipt = await current_job().step("charge", charge_card, order)

        Until its result is on record a step may be called again: after a crash between its effect and the record. Give services
        that take one an idempotency key, `current_step().key`, which is the same in every run. With `conn`, a connection as in
        `complete`, the record is part of your transaction on it: what the function writes there and the record are committed
        together, or not at all.

        A `def` function runs in a thread. A name stands for one step of the job and is used once in a run: in loops, give each
        its own, such as f"page:{number}". A step that raises leaves no record.

        Raises:
            StepError: a name twice, a step inside of a step, a result that cannot be kept or read; the job is a dead letter.
            Aborted: this run should stop, or the job is no longer this worker's.
            NotTransactional: the store has no transactions that a step can share.
        """
        return await self._open_steps().step(name, function, args, kwargs, conn)

    @overload
    def step_sync(self, name: str, function: Callable[..., R], /, *args: Any, conn: Any, **kwargs: Any) -> R: ...

    @overload
    def step_sync(self, name: str, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R: ...

    def step_sync(self, name: str, function: Callable[..., Any], /, *args: Any, conn: Any = None, **kwargs: Any) -> Any:
        """As `step`, for `def` handlers; the function is called in the same thread."""
        check_no_loop("job.step_sync", "await job.step")
        return self._open_steps().step_sync(name, function, args, kwargs, conn)

    async def add(self, name: str, calls: Iterable[NewJob[R]]) -> list[JobHandle[R]]:
        """Enqueue calls made by `task.bind(...)`, up to 5,000, as a step: if this job runs again, it gets the same handles, and
        nothing is enqueued twice. They become a part of this job's workflow, if it is in one.

            pages = await current_job().add("pages", [fetch.bind(url) for url in urls])

        The calls may wait for each other (`chain(...).jobs`), and start at once otherwise, also while this job runs.

        Raises:
            WorkflowCancelled: the workflow was cancelled meanwhile; nothing was stored.
            InvalidArguments, JobNotFound, JobExpired, UniqueConflict: as when a workflow is enqueued; nothing was stored.
            StepError: a name twice, inside of a step, or too many calls; the job is a dead letter.
        """
        return await self._open_steps().add(name, calls)

    def add_sync(self, name: str, calls: Iterable[NewJob[R]]) -> list[SyncJobHandle[R]]:
        """As `add`, for `def` handlers."""
        from drumbeat.handle import SyncJobHandle  # imported late: handles know the running job

        check_no_loop("job.add_sync", "await job.add")
        return [SyncJobHandle(handle) for handle in self._open_steps().add_sync(name, calls)]

    async def sleep(self, duration: Duration, *, name: str = "sleep") -> None:
        """End this run, and begin the job again after this time; nothing is held meanwhile, no slot, no memory, no lock.

            await current_job().sleep("3 days")

        When the job runs again, from its first line, this call returns at once: when it ends is on record, by the store's
        clock. No attempt is charged. What came before should be in steps: it is repeated otherwise. A second sleep of one
        handler needs a name of its own.

        The run ends by an exception (`Suspended`), so `with` blocks are left: locks are released, transactions are rolled back.
        Do not catch it: the attempt would fail.

        Raises:
            StepError: a name twice, a sleep inside of a step or beside one that runs.
        """
        await self._open_steps().sleep(_to_us(duration), name)

    def sleep_sync(self, duration: Duration, *, name: str = "sleep") -> None:
        """As `sleep`, for `def` handlers."""
        check_no_loop("job.sleep_sync", "await job.sleep")
        self._open_steps().sleep_sync(_to_us(duration), name)

    @overload
    async def wait_for(
        self, signal: str, type: type[T], *, timeout: Duration | None = None, name: str | None = None
    ) -> T: ...

    @overload
    async def wait_for(self, signal: str, *, timeout: Duration | None = None, name: str | None = None) -> Any: ...

    async def wait_for(
        self, signal: str, type: Any = None, *, timeout: Duration | None = None, name: str | None = None
    ) -> Any:
        """Wait until somebody sends this signal to the job (`app.signal`), and return its payload, decoded as `type`.

            approval = await current_job().wait_for("approved", Approval, timeout="7 days")

        Like `sleep` it ends this run, unless a signal is there already, and holds nothing meanwhile. Each signal is read by one
        wait, the oldest first; one that was sent before the wait began counts. A second wait for the same signal needs a
        name of its own.

        Raises:
            SignalTimedOut: no signal came within `timeout`; that is on record, and a later one changes nothing.
            StepError: as `sleep`; or the payload is of another type.
        """
        limit = None if timeout is None else _to_us(timeout, "timeout")
        return await self._open_steps().wait_for(check_signal_name(signal), type, limit, name or signal)

    @overload
    def wait_for_sync(
        self, signal: str, type: type[T], *, timeout: Duration | None = None, name: str | None = None
    ) -> T: ...

    @overload
    def wait_for_sync(self, signal: str, *, timeout: Duration | None = None, name: str | None = None) -> Any: ...

    def wait_for_sync(
        self, signal: str, type: Any = None, *, timeout: Duration | None = None, name: str | None = None
    ) -> Any:
        """As `wait_for`, for `def` handlers."""
        check_no_loop("job.wait_for_sync", "await job.wait_for")
        limit = None if timeout is None else _to_us(timeout, "timeout")
        return self._open_steps().wait_for_sync(check_signal_name(signal), type, limit, name or signal)

    def _check_not_suspended(self) -> None:
        """A handler that swallowed its suspension must not go on."""
        if self.steps is not None and (suspended := self.steps.suspended) is not None:
            raise Suspended(suspended.suspension, suspended.delay_us)


def _to_us(duration: Duration, name: str = "duration") -> int:
    return microseconds(duration, name=name, error=InvalidArguments)


def check_signal_name(name: object) -> str:
    if not isinstance(name, str) or not 0 < len(name) <= MAX_STEP_NAME or not name.isprintable():
        problem = f"a signal has a name of 1 to {MAX_STEP_NAME} printable characters, not {short_repr(name)}"
        raise InvalidArguments(problem, "name")
    return name


class CurrentStep(NamedTuple):
    """The step whose function is running here."""

    name: str
    key: str
    """The job's id and the step's name: the same in every run of the job, and of no other step."""


CURRENT_STEP: ContextVar[CurrentStep] = ContextVar("drumbeat_current_step")


def current_step() -> CurrentStep:
    """The step whose function runs this code: `current_step().key` is for services that take an idempotency key.

    Raises:
        NotInJob: not inside a function that `job.step(...)` calls.
    """
    try:
        return CURRENT_STEP.get()
    except LookupError:
        raise NotInJob("current_step()", "inside a function that `job.step(...)` calls") from None
