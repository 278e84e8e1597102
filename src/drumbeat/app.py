"""Drumbeat: the one object that a program makes. Its public methods are here; its parts are in `internals.py`.

The constructor does no I/O and reads no environment: settings resolve at the first use, connections open at the first call
on a loop.
"""

from __future__ import annotations

import builtins
import contextlib
import functools
import inspect
import logging
import os
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar, Unpack, cast, overload

from drumbeat import appref, logs
from drumbeat.admin import Run, RunQuery
from drumbeat.client.signals import SignalCalls
from drumbeat.client.workflows import WorkflowCalls
from drumbeat.clock import SYSTEM, Clock
from drumbeat.codec.type_codec import CodecDecorator, ValueCodec, check_kind, parse_codec
from drumbeat.core.job import Cancelled, NewJob
from drumbeat.errors import ConfigError, InvalidArguments
from drumbeat.events import Event, Subscriber
from drumbeat.handle import JobHandle
from drumbeat.internals import AppInternals, Lifespan
from drumbeat.locks import GlobalLock, LockOptions
from drumbeat.loop_check import awaited_on_loop
from drumbeat.names import check_key, check_name, short_repr
from drumbeat.override import Override
from drumbeat.platforms import require_posix
from drumbeat.settings import Settings, SettingsOptions
from drumbeat.sync_api import SyncApp
from drumbeat.tasks import Task
from drumbeat.tasks.around import AroundDecorators
from drumbeat.tasks.options import check_new_jobs, check_notify
from drumbeat.tasks.room import RoomDecorators
from drumbeat.tasks.schedule_decorators import ScheduleDecorators

if TYPE_CHECKING:
    from drumbeat.sinks.forwarder import ForwardOptions, ForwardTask
    from drumbeat.sinks.sink import Sink
    from drumbeat.web import Dashboard
    from drumbeat.web.access import Access

T = TypeVar("T")
E = TypeVar("E", bound=Event)
S = TypeVar("S", bound=Callable[..., object])
L = TypeVar("L", bound=Callable[[], AsyncIterator[Any]] | Lifespan)


class Drumbeat(ScheduleDecorators, RoomDecorators, AroundDecorators, SignalCalls, WorkflowCalls):
    """Background jobs on a store. Make one for each program, and register tasks with it."""

    def __init__(
        self,
        url: str | None = None,
        *,
        coordination: str | None = None,
        namespace: str | None = None,
        name: str | None = None,
        version: str | None = None,
        imports: Iterable[str] = (),
        clock: Clock = SYSTEM,
        **settings: Unpack[SettingsOptions],
    ) -> None:
        given: dict[str, object] = {
            "url": url,
            "coordination": coordination,
            "namespace": namespace,
            "name": name,
            "version": version,
            "imports": tuple(imports) or None,
            **settings,
        }
        internals = self._internals = AppInternals(given, clock, Drumbeat)
        self.jobs = internals.jobs
        self.dead = internals.dead
        self.workflows = internals.workflows
        self.queues = internals.queues
        self.tasks = internals.tasks
        self.schedules = internals.schedules
        self.instances = internals.instances
        self.limits = internals.limits
        self.locks = internals.locks
        self.stats = internals.stats
        self.audit = internals.audit
        self.system = internals.system

    @property
    def settings(self) -> Settings:
        """This app's settings, resolved at the first use from flags, code, environment, `.env` and defaults."""
        return self._internals.settings

    def configure(self, flags: Mapping[str, object]) -> Settings:
        """Let these flags (of a command line) override everything else, and read the environment again.

        Meant for the time before the first call.

        Raises:
            ConfigError: the settings name another store than the one that is already open; the message names both.
        """
        return self._internals.configure(flags)

    def override(
        self,
        url: str | None = None,
        *,
        namespace: str | None = None,
        clock: Clock | None = None,
        **settings: Unpack[SettingsOptions],
    ) -> Override:
        """For the length of a `with` or `async with` block this app has another url=, clock= or other settings, for tests.

        They go before everything else that sets them. Overrides nest, and cover `app.sync`.

        Raises:
            ConfigError: a connection of this app is open when the block begins or ends, or a setting is not acceptable.
        """
        named = {"url": url, "namespace": namespace}
        flags = {name: value for name, value in named.items() if value is not None}
        return Override(self._internals, {**flags, **settings}, clock)

    @overload
    def forward(
        self, name: str, /, *, to: Sink, type: type[T], batch: int | None = None, **options: Unpack[ForwardOptions]
    ) -> ForwardTask[T]: ...
    @overload
    def forward(
        self, name: str, /, *, to: Sink, type: Any = Any, batch: int | None = None, **options: Unpack[ForwardOptions]
    ) -> ForwardTask[Any]: ...
    def forward(
        self, name: str, /, *, to: Sink, type: Any = Any, batch: int | None = None, **options: Unpack[ForwardOptions]
    ) -> ForwardTask[Any]:
        """Register a task whose jobs are sent to a sink of `drumbeat.sinks` instead of run; see `ForwardOptions`.

        It is enqueued with one value: of `type`, if given, else any JSON. A job succeeds once the sink has acknowledged it.

        Raises:
            ConfigError: an option is not acceptable, or the name is taken; the message says where.
        """
        from drumbeat.sinks.forwarder import build_forwarder  # imported late: few programs need it

        internals = self._internals
        task, forwarder = build_forwarder(internals.client, name, to, type, batch, options, lambda: internals.clock)
        caller = sys._getframe(1)
        task.source_location = f"{caller.f_code.co_filename}:{caller.f_lineno}"
        internals.registry.add(task)
        internals.lifespans.append(forwarder.lifespan)
        return task

    def on_event(self, kind: type[E]) -> Callable[[S], S]:
        """Decorator: call the function with every event of this class that happens in this process."""
        if not _is_event_class(kind):
            raise ConfigError(f"on_event takes a kind of event, such as AttemptFailed, not {short_repr(kind)}")

        def subscribe(function: S) -> S:
            self._internals.events.subscribe(kind, cast("Subscriber[E]", function))
            return function

        return subscribe

    def codec(self, type: type[T], /) -> CodecDecorator[T]:
        """Decorator: a class with `encode(value)` and `decode(stored)`, static or not, by which values of this type are stored.

        Register it before the tasks that use the type. `encode` gives anything that can be stored; if the parameter of `decode`
        is annotated, what was stored is converted to that type before.

        Raises:
            ConfigError: the type needs no codec or has one already, or this is none.
        """
        check_kind(type)

        def register(codec: builtins.type[ValueCodec[T]]) -> builtins.type[ValueCodec[T]]:
            caller = sys._getframe(1)
            place = f"{caller.f_code.co_filename}:{caller.f_lineno}"
            self._internals.registry.codec.add(parse_codec(type, codec, place))
            return codec

        return register

    def lifespan(self, function: L) -> L:
        """Decorator: a resource that a worker process opens before its first claim and closes after its last job.

        An async generator function with one `yield`, or such a function decorated with contextlib.asynccontextmanager.
        """
        if inspect.isasyncgenfunction(function):
            self._internals.lifespans.append(contextlib.asynccontextmanager(function))
        elif inspect.isfunction(function) and not inspect.iscoroutinefunction(function):
            self._internals.lifespans.append(cast("Lifespan", function))
        else:
            raise ConfigError("a lifespan is an `async def` with one `yield`, or an async context manager function")
        return function

    def enqueue_many(
        self, jobs: Iterable[NewJob[Any]], *, conn: Any = None, notify: bool = True
    ) -> Coroutine[Any, Any, list[JobHandle[Any]]]:
        """Enqueue many calls, made by `task.bind(...)`, in one transaction: all or none. Returns their handles in order.

        With `conn` it is your own transaction, as with `task.using(conn=...)`. A plain function, as `enqueue` is, so that
        mistakes raise where the call is written.
        """
        check_notify(conn, notify)
        client, checked = self._internals.client, check_new_jobs(jobs, conn=conn)
        is_inside = conn is not None
        enqueuing = client.enqueue_in_transaction(conn, checked, notify) if is_inside else client.enqueue_many(checked)
        return awaited_on_loop(enqueuing, "app.enqueue_many", "app.sync.enqueue_many")

    async def cancel(
        self, *, task: str | Task[..., Any], key: str | None = None, keys: Iterable[str] | None = None
    ) -> Cancelled:
        """Cancel all live jobs of this task with this key, or with any of these keys, a few hundred keys per transaction.

        Returns how many will never run, and how many were running and were asked to stop.
        """
        name = task.name if isinstance(task, Task) else check_name("task", task)
        if (key is None) == (keys is None) or isinstance(keys, str | bytes):
            raise InvalidArguments("say which jobs to cancel: key= with one key, or keys= with several", "key")
        all_keys = [key] if keys is None else dict.fromkeys(keys)
        return await self._internals.client.cancel_keys(name, [check_key(each) for each in all_keys])

    async def history(self, *, task: str | Task[..., Any] | None = None, **query: Unpack[RunQuery]) -> list[Run]:
        """Every recorded run of a task's jobs, or of all jobs: due, started, finished, where, its outcome, its delay.

        Newest job first, at most `limit` jobs; `before=` the last run's job gives the next page.
        """
        return await self._internals.history(task=task, **query)

    def lock(self, name: str, **options: Unpack[LockOptions]) -> GlobalLock:
        """A cluster-wide lock, first come first served: `async with app.lock("sweep") as lock: ...`.

        `lock.token` is a fencing token; `lock.lost` and `lock.check()` tell whether the lock is still held. The object may be
        kept and entered again. See `LockOptions` for limit=, per=, timeout=, lease= and cancel_on_loss=.

        Raises, on entering:
            LockTimeout: it was not granted within `timeout`.
            LockReentered: this task already holds it or waits for it.
        Raised when the block ends:
            LockLost: it was lost meanwhile, and the block was cancelled.
        """
        return self._internals.lock(name, **options)

    @functools.cached_property
    def sync(self) -> SyncApp:
        """The same API for code without an event loop."""
        return SyncApp(self)

    def run(self, **flags: Unpack[SettingsOptions]) -> None:
        """Run all roles in this process (and in others, with processes=) until SIGTERM or SIGINT, then drain.

        Exits by SystemExit with the code that a service manager should see, unless it is 0. Does nothing while a worker
        process of this app imports the module. Logs go to stderr as with `drumbeat run`, unless the program has configured
        logging.
        """
        if appref.is_importing():
            return
        require_posix("workers need")
        # Imported late: programs that only enqueue need none of it.
        from drumbeat.processes.service_notifier import ServiceNotifier

        settings = self._internals.configure(flags, keep=True)
        notifier = ServiceNotifier.take(os.environ)
        if not logging.getLogger().handlers:
            # Python's default would show warnings without their fields, and nothing else.
            logs.configure(settings.log_level, settings.log_format)
        ref = appref.find_ref(self)
        if settings.processes > 1:
            if ref is None:
                raise ConfigError(
                    "processes= needs an app that is a module-level variable, so that others can import it"
                )
            from drumbeat.supervisor import Supervisor, supervisor_health

            with supervisor_health(settings, notifier=notifier) as health:
                code = Supervisor(ref, settings, health=health).run()
        else:
            from drumbeat.worker import main
            from drumbeat.worker.worker_health import worker_health

            with worker_health(settings, notifier=notifier) as own_health:
                code = main.run(self._internals, settings, ref=ref, health=own_health)
        if code:
            raise SystemExit(code)

    async def serve(self, **flags: Unpack[SettingsOptions]) -> None:
        """Run all roles on this loop until cancelled, then drain. Never ends the process, installs no signal handlers."""
        require_posix("workers need")
        from drumbeat.worker import main

        settings = self._internals.configure(flags, keep=True)
        await main.serve(self._internals, settings, ref=appref.find_ref(self))

    def dashboard(self, *, access: Access | Literal["open"] | None = None) -> Dashboard:
        """The dashboard and its API as an ASGI application, to be mounted in a program of yours under any path.

        `access` decides who may use it: your own function (sync or async) from the ASGI scope to a `drumbeat.web.Caller`, or
        None for an unknown caller. Without it the settings dashboard_tokens and dashboard_proxy decide. access="open" makes
        every caller on this machine an admin without login; only for a program that nobody else can reach, not even through
        a proxy.

        Raises:
            ConfigError: neither `access` nor the settings say who may use it, or packages are missing.
        """
        try:
            from drumbeat.web import dashboard  # imported late: few programs need it
            from drumbeat.web.access import check_mounted

            if access is None:
                # This is often called at import, when flags may still follow.
                check_mounted(self._internals.load_settings())
            return dashboard(self._internals, access)
        except ImportError as missing:
            raise ConfigError(f"the dashboard needs packages: pip install 'drumbeat[web]' ({missing})") from missing

    async def migrate(self) -> None:
        """Create the tables of the store, or upgrade them, as `drumbeat migrate` does. Only PostgreSQL needs it."""
        from drumbeat.store.urls import migrate_store  # imported late: few programs need it

        settings = self.settings
        for url in filter(None, (settings.url, settings.outbox)):
            await migrate_store(url, namespace=settings.namespace)

    async def __aenter__(self) -> Self:
        await self._internals.enter()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._internals.leave()

    async def close(self) -> None:
        """Close what was opened on this loop. A later call opens it again."""
        await self._internals.close()

    def __repr__(self) -> str:
        return f"<Drumbeat {self._internals.code_settings['name'] or 'app'}>"


def _is_event_class(kind: object) -> bool:
    return isinstance(kind, type) and issubclass(kind, Event)
