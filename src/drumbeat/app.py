"""Drumbeat: settings, tasks and a client, put together; the one object that a program makes.

The constructor does no I/O and reads no environment: settings resolve at the first use, connections open at the first call
on a loop. This is the only module that knows all parts.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import logging
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar, Unpack, cast, overload

from drumbeat import appref, logs
from drumbeat import outbox as outboxes
from drumbeat.admin import (
    Audit,
    Dead,
    Instances,
    Jobs,
    Locks,
    Queues,
    Run,
    RunQuery,
    Schedules,
    Stats,
    System,
    Tasks,
    history,
)
from drumbeat.client import Client
from drumbeat.clock import SYSTEM, Clock
from drumbeat.core.job import Cancelled, NewJob
from drumbeat.errors import ConfigError, InvalidArguments
from drumbeat.events import Event, Events, Subscriber
from drumbeat.handle import JobHandle
from drumbeat.locks import GlobalLock, LeaseKeeper, LockClient, LockOptions, parse_options
from drumbeat.names import check_key, check_name, short_repr
from drumbeat.redaction import mask_url
from drumbeat.settings import MAX_PAYLOAD_LIMIT, STORE_SETTINGS, Settings, SettingsOptions, check_setting_names, load
from drumbeat.store.protocol import Store, Transactional
from drumbeat.store.urls import open_store, transactional_for
from drumbeat.sync_api import SyncApp
from drumbeat.tasks import Enqueuer, Registry, Task
from drumbeat.tasks.options import check_new_jobs, check_notify
from drumbeat.tasks.room import RoomClient, RoomDecorators, RoomRegistry
from drumbeat.tasks.schedule_decorators import Declarations, ScheduleDecorators
from drumbeat.tasks.task import check_loop
from drumbeat.tasks.task_decorators import TaskDecorators

if TYPE_CHECKING:
    from drumbeat.controller import Controller
    from drumbeat.sinks.forwarder import ForwardOptions, ForwardTask
    from drumbeat.sinks.sink import Sink
    from drumbeat.web import Dashboard
    from drumbeat.web.access import Access

T = TypeVar("T")
E = TypeVar("E", bound=Event)
S = TypeVar("S", bound=Callable[..., object])
Lifespan = Callable[[], AbstractAsyncContextManager[Any]]
L = TypeVar("L", bound=Callable[[], AsyncIterator[Any]] | Lifespan)


class Drumbeat(TaskDecorators, ScheduleDecorators, RoomDecorators):
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
        check_setting_names(given)
        self._code_settings = given
        self._flags: dict[str, object] = {}
        self._outbox: tuple[Settings, outboxes.Outbox] | None = None
        self.clock = clock
        self.registry = Registry()
        self.declarations = Declarations()
        self.room_registry = RoomRegistry()
        self.events = Events()
        self.lifespans: list[Lifespan] = []
        self.client = Client(lambda: load(self._flags, self._code_settings), self.registry, clock)
        self.client.wrap_transactional = lambda inside: (
            inside if (outbox := self.outbox) is None else outbox.transactional
        )
        self.jobs = Jobs(self.client, clock)
        self.dead = Dead(self.client, self.jobs, clock)
        self.queues = Queues(self.client)
        self.tasks = Tasks(self.client)
        self.schedules = Schedules(self.client, clock)
        self.instances = Instances(self.client)
        self.locks = Locks(self.client)
        self.stats = Stats(self.client)
        self.audit = Audit(self.client)
        self.system = System(self.client, lambda: self.settings, clock)
        self.keeper = LeaseKeeper(self.open_store, lambda: self.settings, clock)

    @property
    def settings(self) -> Settings:
        """What this app goes by: resolved at the first use, from flags, code, environment, `.env` and defaults."""
        return self.client.settings

    def configure(self, flags: Mapping[str, object]) -> Settings:
        """Let the flags of a command line overrule everything else, and read the environment anew. For the time before the
        first call.

        Raises:
            ConfigError: the jobs would be elsewhere than in the store that was opened before; it names both.
        """
        check_setting_names(flags)
        settings = load(flags, self._code_settings)
        if self.client.opened_settings is not None:
            self._check_same_store(self.client.opened_settings, settings, flags)
        self._flags, self.client.settings = dict(flags), settings
        return settings

    def _check_same_store(self, before: Settings, now: Settings, flags: Mapping[str, object]) -> None:
        changed = [name for name in STORE_SETTINGS if getattr(before, name) != getattr(now, name)]
        if changed and all(name in flags for name in changed) and not self.client.loop_stores.is_open:
            self.client.opened_settings = None  # somebody says where it is now, and nothing is left of where it was
            return
        for name in changed:
            one, other = (mask_url(str(getattr(each, name))) for each in (before, now))
            raise ConfigError(
                f"setting {name} has changed: this app has opened its store with {one} ({before.origin[name]}), and "
                f"{other} ({now.origin[name]}) is another one; set it before the first call, or make another Drumbeat",
                name,
            )

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

        It is enqueued with one value: of `type`, if given, else any JSON. A job is finished once the sink has acknowledged it.

        Raises:
            ConfigError: an option is not acceptable, or the name is taken; it says by whom.
        """
        from drumbeat.sinks.forwarder import build_forwarder  # here, because few programs need it

        task, forwarder = build_forwarder(self.client, name, to, type, batch, options, self.clock)
        caller = sys._getframe(1)
        task.source_location = f"{caller.f_code.co_filename}:{caller.f_lineno}"
        self.registry.add(task)
        self.lifespans.append(forwarder.lifespan)
        return task

    def _get_enqueuer(self) -> Enqueuer:
        return self.client

    def _get_room_client(self) -> RoomClient:
        return self.client

    def _known_queues(self) -> frozenset[str]:
        return self.client.declared_queues()

    def on_event(self, kind: type[E]) -> Callable[[S], S]:
        """Decorator: call the function with every event of this kind that happens in this process."""
        if not _is_event_class(kind):
            raise ConfigError(f"on_event takes a kind of event, such as AttemptFailed, not {short_repr(kind)}")

        def subscribe(function: S) -> S:
            self.events.subscribe(kind, cast("Subscriber[E]", function))
            return function

        return subscribe

    def lifespan(self, function: L) -> L:
        """Decorator: what a worker process opens before its first claim, and closes after its last job.

        An async generator function with one `yield`, or what contextlib.asynccontextmanager has made of one.
        """
        if inspect.isasyncgenfunction(function):
            self.lifespans.append(contextlib.asynccontextmanager(function))
        elif inspect.isfunction(function) and not inspect.iscoroutinefunction(function):
            self.lifespans.append(cast("Lifespan", function))
        else:
            raise ConfigError("a lifespan is an `async def` with one `yield`, or an async context manager function")
        return function

    def enqueue_many(
        self, jobs: Iterable[NewJob], *, conn: Any = None, notify: bool = True
    ) -> Coroutine[Any, Any, list[JobHandle[Any]]]:
        """Queue many calls, made by `task.bind(...)`, in one transaction: all or none. One handle for each, in order.

        With `conn` it is your own transaction, as with `task.using(conn=...)`. A plain function, as `enqueue` is: a mistake is
        told where the call is written.
        """
        check_loop("app.enqueue_many", "app.sync.enqueue_many")
        check_notify(conn, notify)
        if conn is not None:
            return self.client.enqueue_in_transaction(conn, check_new_jobs(jobs), notify)
        return self.client.enqueue_many(check_new_jobs(jobs))

    async def cancel(
        self, *, task: str | Task[..., Any], key: str | None = None, keys: Iterable[str] | None = None
    ) -> Cancelled:
        """Cancel all live jobs of this task and key, or of any of these keys, a few hundred in one step.

        Gives how many will never run, and how many were running and were asked to stop.
        """
        name = task.name if isinstance(task, Task) else check_name("task", task)
        if (key is None) == (keys is None) or isinstance(keys, str | bytes):
            raise InvalidArguments("say which jobs to cancel: key= with one key, or keys= with several", "key")
        wanted = [key] if keys is None else dict.fromkeys(keys)
        return await self.client.cancel_keys(name, [check_key(each) for each in wanted])

    async def history(self, *, task: str | Task[..., Any] | None = None, **wanted: Unpack[RunQuery]) -> list[Run]:
        """Every run on record of the jobs of a task, or of all: due, started, finished, where, how it ended, how late.

        Newest job first, at most `limit` jobs; `before=` the last one's job gives the next page.
        """
        return await history(self.client, task, wanted)

    def lock(self, name: str, **options: Unpack[LockOptions]) -> GlobalLock:
        """A lock in the whole cluster: `async with app.lock("sweep") as lock: ...`. First come, first served.

        `lock.token` fences its holder, `lock.lost` and `lock.check()` say whether it is still held. What it gives may be kept
        and entered again. See `LockOptions` for limit=, per=, timeout=, lease= and cancel_on_loss=.

        Raises, on entering:
            LockTimeout: the turn did not come within `timeout`.
            LockReentered: this task has it already.
        Raised when the block is left:
            LockLost: it was lost meanwhile, and the block was cancelled.
        """
        return GlobalLock(self.lock_client(name, options))

    def lock_client(self, name: str, options: LockOptions) -> LockClient:
        """What `lock` and `sync.lock` go by."""
        return LockClient(parse_options(name, options), self.keeper, self.store, lambda: self.settings, self.clock)

    @functools.cached_property
    def sync(self) -> SyncApp:
        """The same for code without a loop."""
        return SyncApp(self)

    def run(self, **flags: Unpack[SettingsOptions]) -> None:
        """Run all roles in this process (and in others, with processes=) until SIGTERM or SIGINT, and drain.

        Leaves by SystemExit with the code that a service manager should see, unless it is 0. When this module is being
        imported by one of its own worker processes, nothing happens. Logs go to stderr as with
        `drumbeat run`, unless the program has configured logging.
        """
        if appref.is_importing():
            return
        settings = self.configure(self._flags | flags)
        if not logging.getLogger().handlers:
            # The process is ours until it ends. Without this, warnings would be seen without their fields, and nothing else.
            logs.configure(settings.log_level, settings.log_format)
        ref = appref.find_ref(self)
        if settings.processes > 1:
            if ref is None:
                raise ConfigError(
                    "processes= needs an app that is a module-level variable, so that others can import it"
                )
            from drumbeat.supervisor import Supervisor  # here, because a program that only enqueues needs none of it

            code = Supervisor(ref, settings).run()
        else:
            from drumbeat.worker import main

            code = main.run(self, settings, ref=ref)
        if code:
            raise SystemExit(code)

    async def serve(self, **flags: Unpack[SettingsOptions]) -> None:
        """Run all roles on this loop until cancelled; a cancellation drains. Never ends the process, nor takes signals."""
        from drumbeat.worker import main

        await main.serve(self, self.configure(self._flags | flags), ref=appref.find_ref(self))

    def dashboard(self, *, access: Access | Literal["open"] | None = None) -> Dashboard:
        """The dashboard and its API as an ASGI application, to be mounted in a program of yours, under any path.

        Who may use it is said by `access`, a function of your own (sync or async) from the ASGI scope to a
        `drumbeat.web.Caller`, or None for somebody unknown; or by the settings dashboard_tokens and dashboard_proxy.
        access="open": whoever is on this machine is admin without a login; for a program that nobody else can reach, not
        even by a proxy.

        Raises:
            ConfigError: nobody has said who may use it, or packages are missing.
        """
        try:
            from drumbeat.web import dashboard  # here, because few programs need it
            from drumbeat.web.access import check_mounted

            if access is None:
                # Looked at, not resolved: this is often called at import, and flags may still come.
                check_mounted(load(self._flags, self._code_settings))
            return dashboard(self, access)
        except ImportError as missing:
            raise ConfigError(f"the dashboard needs packages: pip install 'drumbeat[web]' ({missing})") from missing

    @property
    def transactional(self) -> Transactional:
        """What can be done in a transaction of the caller's own."""
        return self.client.transactional

    @property
    def outbox(self) -> outboxes.Outbox | None:
        """What carries jobs over from a database of the user's own; None: there is none."""
        settings = self.settings
        if settings.outbox is None:
            return None
        if self._outbox is None or self._outbox[0] is not settings:
            # Its own app, on its own store. The letters are larger than the jobs in them.
            app = Drumbeat(
                settings.outbox,
                namespace=settings.namespace,
                name=f"{settings.name}.outbox",
                version=settings.version,
                clock=self.clock,
                payload_limit=MAX_PAYLOAD_LIMIT,
                retention=outboxes.MESSAGE_RETENTION,
                role="both",
                outbox="",
            )
            inside = transactional_for(settings.url, namespace=settings.namespace, clock=self.clock)
            self._outbox = settings, outboxes.Outbox(app, self.store, inside, self.clock)
        return self._outbox[1]

    @property
    def companions(self) -> Sequence[Callable[[], AbstractAsyncContextManager[None]]]:
        """What a worker process runs beside its own work."""
        return [] if (outbox := self.outbox) is None else [outbox.run_relay]

    @property
    def registered_tasks(self) -> list[Task[..., Any]]:
        return list(self.registry)

    def controller(self, settings: Settings) -> Controller:
        """What looks after the cluster beside a worker of this app."""
        from drumbeat.controller import Controller  # here, as in `run`

        return Controller(
            settings,
            self.clock,
            self.events,
            declared=self.declared_schedules(),
            startup_calls=self.startup_calls,
            acquire_lock=self.lock,
        )

    async def store(self) -> Store:
        """This loop's store, opened at the first call."""
        return await self.client.loop_stores.current().store()

    async def open_store(self) -> Store:
        """Another store on the same database; whoever opens it closes it."""
        settings = self.settings
        return await open_store(
            settings.url, coordination=settings.coordination, namespace=settings.namespace, clock=self.clock
        )

    async def __aenter__(self) -> Self:
        connection = self.client.loop_stores.current()
        await connection.store()
        connection.users += 1
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        connection = self.client.loop_stores.current()
        connection.users -= 1
        # Entered twice on one loop, by a framework and by a test for instance: the last one closes.
        if connection.users == 0:
            await self.keeper.close()
            await connection.close()

    async def close(self) -> None:
        """Close what was opened on this loop. A later call opens it again."""
        await self.keeper.close()
        await self.client.close()

    def __repr__(self) -> str:
        return f"<Drumbeat {self._code_settings['name'] or 'app'}>"


def _is_event_class(kind: object) -> bool:
    return isinstance(kind, type) and issubclass(kind, Event)
