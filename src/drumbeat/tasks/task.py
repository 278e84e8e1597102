"""A task: a registered function, and the methods that enqueue calls of it.

`enqueue` has the signature of the function, for type checkers and at run time: arguments are checked where they are given.
Calling a task directly calls the function. A task reaches its app through the `Enqueuer` protocol.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any, Generic, Literal, ParamSpec, Protocol, TypeVar, Unpack, overload

from drumbeat.codec import MAX_PAYLOAD, ParentReference, Signature
from drumbeat.context import CURRENT_JOB
from drumbeat.core.edge import IfParentFails, NewEdge
from drumbeat.core.job import Job, NewJob
from drumbeat.errors import ConfigError, InvalidArguments, JobError
from drumbeat.flow_parts import Mapped
from drumbeat.foreign_words import METHODS
from drumbeat.handle import JobHandle, SyncJobHandle
from drumbeat.ids import JobId, new_job_id
from drumbeat.loop_check import awaited_on_loop, check_no_loop, mark_as_async
from drumbeat.names import short_repr
from drumbeat.protocols import Enqueuer

from .follow_up import DeadLetterSignature, SuccessSignature
from .limits import DeclaredQueue, compute_group
from .line_policies import check_overrides, find_lane
from .options import (
    PARENTS_IN_TRANSACTION,
    POLICY_WITHOUT_PARENTS,
    EnqueueOptions,
    EnqueueOverrides,
    Options,
    parse_enqueue_options,
)
from .parents import build_edges, is_job
from .registered_function import AsyncCallable, AsyncFunction, RegisteredFunction, SyncFunction, source_location_of

_NO_OVERRIDES = EnqueueOverrides()
P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S")
T = TypeVar("T")
Upgrade = Callable[[dict[str, Any], str], dict[str, Any]]
"""Converts stored arguments of an older signature to the current one; the second argument is the older signature's hash."""
OnDead = TypeVar("OnDead", bound=Callable[[Job, JobError], object])
Returned = TypeVar("Returned")
FollowUp = Literal["on_dead", "on_success"]
FOLLOW_UPS: dict[FollowUp, tuple[str, str]] = {"on_dead": ("job", "error"), "on_success": ("job", "result")}
"""The parameters of their functions."""
Upgrader = TypeVar("Upgrader", bound=Upgrade)


class ArgumentCodec(Protocol):
    """How the arguments of a task are stored; see `codec.Signature`."""

    @property
    def hash(self) -> str: ...

    @property
    def returns(self) -> Any: ...

    def encode(self, args: tuple[Any, ...], kwargs: dict[str, Any], *, limit: int = MAX_PAYLOAD) -> str: ...

    def decode(self, raw: str | bytes, *, limit: int = MAX_PAYLOAD) -> tuple[tuple[Any, ...], dict[str, Any]]: ...


class Task(RegisteredFunction[P, R], Mapped):
    """A registered function. The worker reads the attributes; programs use the methods."""

    runs_user_code = True
    """Whether it runs code of the program, which may end the process."""

    is_claiming_paused: Callable[[], bool] | None = None
    """Tells, on the worker's loop, that claiming its jobs is pointless now; None: never."""

    def __init__(
        self,
        enqueuer: Enqueuer,
        function: Callable[..., Any],
        name: str,
        options: Options,
        signature: ArgumentCodec | None = None,
    ) -> None:
        super().__init__(enqueuer, function, name)
        self.options = options
        self.signature: ArgumentCodec = Signature.of(function, enqueuer.codec) if signature is None else signature
        self.upgrader: Upgrade | None = None
        self.on_dead_task: Task[..., Any] | None = None
        self.on_success_task: Task[..., Any] | None = None
        self._on_dead: str | None = None
        self._hash: str | None = None

    @property
    def queue_policies(self) -> Mapping[str, DeclaredQueue]:
        return self._enqueuer.queue_policies

    @property
    def returns(self) -> Any:
        """The type that the result of a job is decoded to."""
        return self.signature.returns

    @mark_as_async
    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, JobHandle[R]]:
        """Enqueue a call; the job is on disk when this returns.

        A plain function: a wrong argument raises where the call is written, not where it is awaited.
        """
        enqueuing = self._enqueuer.enqueue(self._build_job(args, kwargs))
        return awaited_on_loop(enqueuing, f"{self.name}.enqueue", f"{self.name}.enqueue_sync")

    def enqueue_sync(self, *args: P.args, **kwargs: P.kwargs) -> SyncJobHandle[R]:
        """Enqueue a call from code without a loop."""
        check_no_loop(f"{self.name}.enqueue_sync", f"await {self.name}.enqueue")
        return self._enqueuer.enqueue_sync(f"{self.name}.enqueue_sync", self._build_job(args, kwargs))

    def bind(self, *args: P.args, **kwargs: P.kwargs) -> NewJob[R]:
        """A call to be enqueued together with others by `app.enqueue_many`, or as a part of a workflow."""
        return self._build_job(args, kwargs)

    def using(self, **options: Unpack[EnqueueOptions]) -> BoundTask[P, R]:
        """The same task with other options for the next enqueue: a delay, a queue, a key, a transaction of your own.

        `conn=` is your own connection to the database that holds the jobs (or a cursor, or a session): the job is stored in
        its transaction, visible after the commit and gone after a rollback. With autocommit it is stored at once. After
        `notify=False` the commit wakes no workers: they find the job at their next poll.

        `after=[job, ...]` are jobs that must have ended before: their handles, ids, or calls bound for the same `enqueue_many`.
        If one dies, is cancelled or expires, `if_parent_fails` decides: "cancel" cancels this job too (the default; a replay of
        the dead one makes it wait again), "run" runs it, "wait" waits until somebody replays the dead one.

        Raises:
            InvalidArguments: an option has an impossible value, or two exclude each other.
        """
        overrides = parse_enqueue_options(options)
        if overrides.queue is not None or overrides.priority is not None:
            check_overrides(self, queue=overrides.queue, priority=overrides.priority)
        return BoundTask(self, overrides)

    def on_dead(self, function: OnDead) -> OnDead:
        """Decorator: the transaction that makes a job of this task dead also enqueues a call `function(job, error)`."""
        task = self.on_dead_task = self._register_follow_up("on_dead", function, DeadLetterSignature())
        self._on_dead = task.name
        return function

    def on_success(self, function: Callable[[Job, R], Returned]) -> Callable[[Job, R], Returned]:
        """Decorator: the transaction in which a job of this task succeeds also enqueues a call `function(job, result)`.

        So it does for `complete()` in a transaction of the handler's own. It is the worker's: jobs that wait have it too.
        `result` is None where the result could not be kept; `job.result_error` says why.
        """
        signature = SuccessSignature(lambda: self.returns)
        self.on_success_task = self._register_follow_up("on_success", function, signature)
        return function

    def _register_follow_up(
        self, kind: FollowUp, function: Callable[..., Any], signature: ArgumentCodec
    ) -> Task[..., Any]:
        check_follow_up(kind, function)
        options = Options(
            queue=self.options.queue,
            priority=self.options.priority,
            pool="loop" if inspect.iscoroutinefunction(function) else "thread",
        )
        task: Task[..., Any] = Task(self._enqueuer, function, f"{self.name}.{kind}", options, signature)
        self._enqueuer.register(task)
        return task

    def upgrade(self, function: Upgrader) -> Upgrader:
        """Decorator: `function(arguments, signature)` converts arguments that an older version stored to the current ones.

        Called only for jobs of another signature, with the arguments as plain JSON values. For a signature that it does not
        know it should return them unchanged.
        """
        _check_parameters(function, ("arguments", "signature"))
        if self.upgrader is not None:
            raise ConfigError(
                f"task {self.name!r} has an upgrade already, at {source_location_of(self.upgrader)}; "
                f"a second one is at {source_location_of(function)}"
            )
        self.upgrader = function
        return function

    if not TYPE_CHECKING:  # else a type checker would believe that there is everything

        def __getattr__(self, name: str) -> Any:
            ours = METHODS.get(name)
            hint = "" if ours is None else f": here that is {ours}"
            raise AttributeError(f"a task has no {name!r}{hint}", name=name, obj=self)

    def _build_job(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], overrides: EnqueueOverrides = _NO_OVERRIDES
    ) -> NewJob[Any]:
        settings, options = self._enqueuer.settings, self.options
        signature, running = self.signature, CURRENT_JOB.get(None)
        if self._hash is None:
            self._hash = signature.hash
        references: dict[str, ParentReference] | None = None
        try:
            text = signature.encode(args, kwargs, limit=settings.payload_limit)
        except InvalidArguments:
            # Only here are results of other jobs looked for: other calls do not pay for it.
            given = (*args, *kwargs.values())
            if any(map(is_job, given)):
                raise InvalidArguments(
                    f"{self.name}: a job is no argument: give its result, as node.result of what flow.add(...) gave, or what "
                    "await job.result() returned"
                ) from None
            if not isinstance(signature, Signature) or not any(type(value) is ParentReference for value in given):
                raise
            text, references = signature.encode_bound(args, kwargs, limit=settings.payload_limit)
        id = new_job_id()
        queue = options.queue if overrides.queue is None else self._check_queue(overrides.queue)
        group = lane = ""
        if options.policy or options.group or overrides.group or queue in self._enqueuer.queue_policies:
            group, lane = self._place(queue, overrides.group, args, kwargs)
        return NewJob(
            id=id,
            task=self.name,
            queue=queue,
            args=text,
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
            group=group,
            lane=lane,
            expires_at=overrides.expires_at,
            expires=options.expires_us if overrides.expires_us is None else overrides.expires_us,
            parent=None if running is None else running.id,
            after=() if overrides is _NO_OVERRIDES and references is None else _build_edges(id, references, overrides),
        )

    def _place(self, queue: str, group: str | None, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[str, str]:
        """Group and lane of a call."""
        if group is None:
            group = compute_group(self.name, self.options.group, args, kwargs)
        return group, find_lane(self, queue, group)

    def _check_queue(self, queue: str) -> str:
        known = self._enqueuer.declared_queues()
        if queue not in known:
            raise InvalidArguments(
                f"queue {queue!r} is declared by no task and no setting, so no worker would take it; "
                f"known are {', '.join(sorted(known))}",
                "queue",
            )
        return queue


class AsyncTask(AsyncFunction[P, R], Task[P, R]):
    """A task whose function is `async def`."""


class SyncTask(SyncFunction[P, R], Task[P, R]):
    """A task whose function is `def`."""


class BoundTask(Mapped, Generic[P, R]):
    """A task with options for the next enqueue. It cannot be called."""

    __slots__ = ("_overrides", "_task")

    def __init__(self, task: Task[P, R], overrides: EnqueueOverrides) -> None:
        self._task = task
        self._overrides = overrides

    @mark_as_async
    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, JobHandle[R]]:
        """As `Task.enqueue`."""
        name = self._task.name
        job = self._task._build_job(args, kwargs, self._overrides)
        is_inside = self._overrides.conn is not None
        enqueuing = self._enqueue_in_transaction(job) if is_inside else self._task._enqueuer.enqueue(job)
        return awaited_on_loop(enqueuing, f"{name}.using(...).enqueue", f"{name}.using(...).enqueue_sync")

    def enqueue_sync(self, *args: P.args, **kwargs: P.kwargs) -> SyncJobHandle[R]:
        """As `Task.enqueue_sync`."""
        api_name = f"{self._task.name}.using(...).enqueue_sync"
        check_no_loop(api_name, f"await {self._task.name}.using(...).enqueue")
        overrides = self._overrides
        job = self._task._build_job(args, kwargs, overrides)
        if overrides.conn is not None:
            return self._task._enqueuer.enqueue_in_transaction_sync(overrides.conn, [job], overrides.notify)[0]
        return self._task._enqueuer.enqueue_sync(api_name, job)

    async def _enqueue_in_transaction(self, job: NewJob[Any]) -> JobHandle[R]:
        [handle] = await self._task._enqueuer.enqueue_in_transaction(
            self._overrides.conn, [job], self._overrides.notify
        )
        return handle

    def bind(self, *args: P.args, **kwargs: P.kwargs) -> NewJob[R]:
        """As `Task.bind`."""
        if self._overrides.conn is not None:
            raise InvalidArguments("give conn to enqueue_many: all its jobs are stored in one transaction", "conn")
        return self._task._build_job(args, kwargs, self._overrides)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._task.name}>"


class TaskDecorator(Protocol):
    """The type of `@app.task(...)` with options."""

    @overload
    def __call__(self, function: AsyncCallable[P, R], /) -> AsyncTask[P, R]: ...  # type: ignore[overload-overlap]
    @overload
    def __call__(self, function: Callable[P, R], /) -> SyncTask[P, R]: ...


def _build_edges(
    id: JobId, references: Mapping[str, ParentReference] | None, overrides: EnqueueOverrides
) -> tuple[NewEdge, ...]:
    if not references and not overrides.after:
        if overrides.if_parent_fails is not None:
            raise InvalidArguments(POLICY_WITHOUT_PARENTS, "if_parent_fails")
        return ()
    if overrides.conn is not None:
        raise InvalidArguments(PARENTS_IN_TRANSACTION, "after")
    return build_edges(id, overrides.after, references or {}, overrides.if_parent_fails or IfParentFails.CANCEL)


def check_follow_up(kind: FollowUp, function: object) -> None:
    """Refuse what cannot be an on_dead or on_success function."""
    parameters = FOLLOW_UPS[kind]
    if not callable(function) or isinstance(function, type | Task):
        raise ConfigError(f"{kind} must be a function ({', '.join(parameters)}), not {short_repr(function)}", kind)
    _check_parameters(function, parameters, kind)


def _check_parameters(function: Callable[..., Any], names: tuple[str, ...], option: str | None = None) -> None:
    try:
        inspect.signature(function).bind(*names)
    except TypeError as error:
        raise ConfigError(
            f"{source_location_of(function)}: this function must take ({', '.join(names)}): {error}", option
        ) from error
