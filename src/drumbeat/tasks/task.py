"""A task: a registered function, with the ways to queue a call of it.

`enqueue` has the signature of the function, for type checkers and at run time: arguments are checked where they are given.
Calling a task directly calls the function. What a task knows of the program around it is the `Home` protocol.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Generic, ParamSpec, Protocol, TypeVar, Unpack, overload

from drumbeat.codec import MAX_PAYLOAD, Signature
from drumbeat.core.job import Job, NewJob
from drumbeat.errors import ConfigError, InvalidArguments, JobError, WrongContext
from drumbeat.handle import JobHandle, SyncJobHandle
from drumbeat.ids import new_job_id
from drumbeat.retry import Backoff
from drumbeat.settings import Settings

from .dead_letter import DeadLetterSignature
from .options import EnqueueOptions, EnqueueOverrides, Options, Pool, parse_enqueue_options

_NO_OVERRIDES = EnqueueOverrides()
P = ParamSpec("P")
R = TypeVar("R")
Upgrade = Callable[[dict[str, Any], str], dict[str, Any]]
"""Turns stored arguments of an older signature into today's; the second argument is the older signature's hash."""
OnDead = TypeVar("OnDead", bound=Callable[[Job, JobError], object])
Upgrader = TypeVar("Upgrader", bound=Upgrade)


class ArgumentCodec(Protocol):
    """How the arguments of a task are stored; see `codec.Signature`."""

    @property
    def hash(self) -> str: ...

    @property
    def returns(self) -> Any: ...

    def encode(self, args: tuple[Any, ...], kwargs: dict[str, Any], *, limit: int = MAX_PAYLOAD) -> str: ...

    def decode(self, raw: str | bytes, *, limit: int = MAX_PAYLOAD) -> tuple[tuple[Any, ...], dict[str, Any]]: ...


class Enqueuer(Protocol):
    """The program that a task belongs to."""

    @property
    def settings(self) -> Settings: ...

    def register(self, task: Task[..., Any]) -> None: ...

    def declared_queues(self) -> frozenset[str]: ...

    async def enqueue(self, job: NewJob) -> JobHandle[Any]: ...

    def enqueue_sync(self, api_name: str, job: NewJob) -> SyncJobHandle[Any]: ...

    async def enqueue_in_transaction(self, conn: Any, jobs: Sequence[NewJob], notify: bool) -> list[JobHandle[Any]]: ...

    def enqueue_in_transaction_sync(
        self, conn: Any, jobs: Sequence[NewJob], notify: bool
    ) -> list[SyncJobHandle[Any]]: ...


class Task(Generic[P, R]):
    """A registered function. The worker reads the attributes; programs use the methods."""

    runs_user_code = True
    """There is code of the program's in it, which may end the process."""

    is_claiming_paused: Callable[[], bool] | None = None
    """Whether there is no use in claiming its jobs now, where that can be: asked on the worker's loop."""

    def __init__(
        self,
        enqueuer: Enqueuer,
        function: Callable[..., Any],
        name: str,
        options: Options,
        signature: ArgumentCodec | None = None,
    ) -> None:
        self._enqueuer = enqueuer
        self.function = function
        self.name = name
        self.options = options
        self.signature: ArgumentCodec = Signature.of(function) if signature is None else signature
        self.source_location = source_location_of(function)
        self.is_async = inspect.iscoroutinefunction(function)
        self.upgrader: Upgrade | None = None
        self.on_dead_task: Task[..., Any] | None = None
        self._on_dead: str | None = None
        self._hash: str | None = None
        functools.update_wrapper(self, function, updated=())  # type: ignore[arg-type]

    @property
    def queue(self) -> str:
        return self.options.queue

    @property
    def pool(self) -> Pool:
        return self.options.pool

    @property
    def retries(self) -> int:
        return self.options.retries

    @property
    def backoff(self) -> Backoff:
        return self.options.backoff

    @property
    def timeout_us(self) -> int | None:
        return self.options.timeout_us

    @property
    def batch(self) -> int | None:
        return self.options.batch

    @property
    def returns(self) -> Any:
        """The type that the result of a job is read back by."""
        return self.signature.returns

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, JobHandle[R]]:
        """Queue a call; the job is on disk when this returns.

        A plain function: a wrong argument, or a missing loop, is told where the call is written and not where it is awaited.
        """
        check_loop(f"{self.name}.enqueue", f"{self.name}.enqueue_sync")
        return self._enqueuer.enqueue(self._build_job(args, kwargs))

    def enqueue_sync(self, *args: P.args, **kwargs: P.kwargs) -> SyncJobHandle[R]:
        """Queue a call from code without a loop."""
        check_no_loop(f"{self.name}.enqueue_sync", f"await {self.name}.enqueue")
        return self._enqueuer.enqueue_sync(f"{self.name}.enqueue_sync", self._build_job(args, kwargs))

    def bind(self, *args: P.args, **kwargs: P.kwargs) -> NewJob:
        """A call to be queued together with others by `app.enqueue_many`."""
        return self._build_job(args, kwargs)

    def using(self, **options: Unpack[EnqueueOptions]) -> BoundTask[P, R]:
        """The same task, with the next enqueue done otherwise: later, elsewhere, under a key, in a transaction of your own.

        `conn=` is your own connection to the database that holds the jobs (or a cursor, or a session): the job is stored in
        its transaction, visible after the commit and gone after a rollback. On a connection that commits each statement by
        itself it is stored at once. `notify=False` lets the commit wake no workers: they find the job when they look.

        Raises:
            InvalidArguments: an option has an impossible value, or two exclude each other.
        """
        return BoundTask(self, parse_enqueue_options(options))

    def on_dead(self, function: OnDead) -> OnDead:
        """Decorator: `function(job, error)` becomes a job of its own in the step that makes a job of this task dead."""
        _check_parameters(function, ("job", "error"))
        options = Options(
            queue=self.options.queue,
            priority=self.options.priority,
            pool="loop" if inspect.iscoroutinefunction(function) else "thread",
        )
        name = f"{self.name}.on_dead"
        task: Task[[Job, JobError], Any] = Task(self._enqueuer, function, name, options, DeadLetterSignature())
        self._enqueuer.register(task)
        self.on_dead_task, self._on_dead = task, name
        return function

    def upgrade(self, function: Upgrader) -> Upgrader:
        """Decorator: `function(arguments, signature)` makes today's arguments of those that an older version stored.

        It is asked for jobs of another signature only, and gets the arguments as plain JSON values. For a signature that it
        does not know it should give them back as they are.
        """
        _check_parameters(function, ("arguments", "signature"))
        if self.upgrader is not None:
            raise ConfigError(
                f"task {self.name!r} has an upgrade already, at {source_location_of(self.upgrader)}; "
                f"a second one is at {source_location_of(function)}"
            )
        self.upgrader = function
        return function

    def _build_job(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], overrides: EnqueueOverrides = _NO_OVERRIDES
    ) -> NewJob:
        settings, options = self._enqueuer.settings, self.options
        signature = self.signature
        if self._hash is None:
            self._hash = signature.hash
        return NewJob(
            id=new_job_id(),
            task=self.name,
            queue=options.queue if overrides.queue is None else self._check_queue(overrides.queue),
            args=signature.encode(args, kwargs, limit=settings.payload_limit),
            signature=self._hash,
            priority=options.priority if overrides.priority is None else overrides.priority,
            run_at=overrides.run_at,
            delay=overrides.delay_us,
            key=overrides.key,
            unique=overrides.unique,
            retries=overrides.retries,
            timeout=overrides.timeout_us,
            crash_limit=settings.crash_limit if options.on_crash == "retry" else 1,
            on_dead=self._on_dead,
        )

    def _check_queue(self, queue: str) -> str:
        known = self._enqueuer.declared_queues()
        if queue not in known:
            raise InvalidArguments(
                f"queue {queue!r} is declared by no task and no setting, so no worker would take it; "
                f"known are {', '.join(sorted(known))}",
                "queue",
            )
        return queue

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"


class AsyncTask(Task[P, R]):
    """A task whose function is `async def`."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R]:
        """Call the function itself, here and now; nothing is queued."""
        called: Coroutine[Any, Any, R] = self.function(*args, **kwargs)
        return called


class SyncTask(Task[P, R]):
    """A task whose function is `def`."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function itself, here and now; nothing is queued."""
        returned: R = self.function(*args, **kwargs)
        return returned


class BoundTask(Generic[P, R]):
    """A task with wishes for how to queue it. It cannot be called."""

    __slots__ = ("_overrides", "_task")

    def __init__(self, task: Task[P, R], overrides: EnqueueOverrides) -> None:
        self._task = task
        self._overrides = overrides

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, JobHandle[R]]:
        """As `Task.enqueue`."""
        name = self._task.name
        check_loop(f"{name}.using(...).enqueue", f"{name}.using(...).enqueue_sync")
        job = self._task._build_job(args, kwargs, self._overrides)
        if self._overrides.conn is not None:
            return self._enqueue_in_transaction(job)
        return self._task._enqueuer.enqueue(job)

    def enqueue_sync(self, *args: P.args, **kwargs: P.kwargs) -> SyncJobHandle[R]:
        """As `Task.enqueue_sync`."""
        called = f"{self._task.name}.using(...).enqueue_sync"
        check_no_loop(called, f"await {self._task.name}.using(...).enqueue")
        job = self._task._build_job(args, kwargs, self._overrides)
        wishes = self._overrides
        if wishes.conn is not None:
            return self._task._enqueuer.enqueue_in_transaction_sync(wishes.conn, [job], wishes.notify)[0]
        return self._task._enqueuer.enqueue_sync(called, job)

    async def _enqueue_in_transaction(self, job: NewJob) -> JobHandle[R]:
        [handle] = await self._task._enqueuer.enqueue_in_transaction(
            self._overrides.conn, [job], self._overrides.notify
        )
        return handle

    def bind(self, *args: P.args, **kwargs: P.kwargs) -> NewJob:
        """As `Task.bind`."""
        if self._overrides.conn is not None:
            raise InvalidArguments("give conn to enqueue_many: all its jobs are stored in one transaction", "conn")
        return self._task._build_job(args, kwargs, self._overrides)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._task.name}>"


class TaskDecorator(Protocol):
    """What `@app.task(...)` with options is."""

    @overload
    def __call__(  # type: ignore[overload-overlap]
        self, function: Callable[P, Coroutine[Any, Any, R]], /
    ) -> AsyncTask[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> SyncTask[P, R]: ...


def _check_parameters(function: Callable[..., Any], names: tuple[str, ...]) -> None:
    try:
        inspect.signature(function).bind(*names)
    except TypeError as error:
        wanted = ", ".join(names)
        raise ConfigError(f"{source_location_of(function)}: this function must take ({wanted}): {error}") from error


def check_loop(api_name: str, instead: str) -> None:
    """Refuse where no event loop runs."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        raise WrongContext(api_name, instead, loop_runs=False) from None


def check_no_loop(api_name: str, instead: str) -> None:
    """Refuse on the thread of a running loop: it would stand still, and wait for itself."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise WrongContext(api_name, instead, loop_runs=True)


def source_location_of(function: Callable[..., Any]) -> str:
    """file:line of a function."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    return "an unknown place" if code is None else f"{code.co_filename}:{code.co_firstlineno}"
