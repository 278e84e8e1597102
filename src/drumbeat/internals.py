"""AppInternals: the parts behind a `Drumbeat` app, which workers, the dashboard and the CLI use as `app._internals`.

Implements `protocols.WorkerApp`; the dashboard knows it as `Admin`. Nothing here does I/O before the first call; settings
resolve at the first use.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, Unpack

from drumbeat.admin import Admin
from drumbeat.client import Client
from drumbeat.clock import Clock
from drumbeat.core.schedule import NewSchedule
from drumbeat.errors import ConfigError
from drumbeat.events import Events
from drumbeat.locks import GlobalLock, LeaseKeeper, LockClient, LockOptions, parse_options
from drumbeat.outbox import MESSAGE_RETENTION, Outbox
from drumbeat.redaction import mask_url
from drumbeat.settings import MAX_PAYLOAD_LIMIT, STORE_SETTINGS, Settings
from drumbeat.settings_loader import CODE_ORIGIN, check_setting_names, load
from drumbeat.store.protocol import Store, Transactional
from drumbeat.store.urls import transactional_for
from drumbeat.sync_loop import SYNC_LOOP
from drumbeat.tasks import Registry, Room
from drumbeat.tasks.schedule_decorators import Declarations

if TYPE_CHECKING:
    from drumbeat.app import Drumbeat
    from drumbeat.controller import Controller

Lifespan = Callable[[], AbstractAsyncContextManager[Any]]


class AppInternals(Admin):
    """`make_app` builds the second app that an outbox runs on."""

    def __init__(self, code_settings: Mapping[str, object], clock: Clock, make_app: Callable[..., Drumbeat]) -> None:
        check_setting_names(code_settings)
        self.code_settings = code_settings
        self.code_origin = CODE_ORIGIN
        """How messages name a setting of the code."""
        self._make_app = make_app
        self._flags: dict[str, object] = {}
        self._outbox: tuple[Settings, Outbox] | None = None
        self.declarations = Declarations()
        self.rooms: dict[str, Room[..., Any]] = {}
        self.events = Events()
        self.lifespans: list[Lifespan] = []
        super().__init__(Client(self.load_settings, Registry(), clock))
        self.client.wrap_transactional = self._wrap_transactional
        self.keeper = self._new_keeper()

    def _new_keeper(self) -> LeaseKeeper:
        return LeaseKeeper(lambda: self.open_store(), lambda: self.settings, self.clock)

    def load_settings(self) -> Settings:
        """What `settings` would be if it were resolved now. Fixes nothing: flags may still follow."""
        return load(self._flags, self.code_settings, code_origin=self.code_origin)

    def configure(self, flags: Mapping[str, object], *, keep: bool = False) -> Settings:
        """Replace the flags, or with `keep` add to them, and read the environment again; see `Drumbeat.configure`."""
        flags = self._flags | dict(flags) if keep else dict(flags)
        check_setting_names(flags)
        settings = load(flags, self.code_settings, code_origin=self.code_origin)
        if self.client.opened_settings is not None:
            self._check_same_store(self.client.opened_settings, settings, flags)
        self._flags, self.client.settings = flags, settings
        return settings

    def begin_override(self, flags: Mapping[str, object], clock: Clock | None) -> dict[str, Any]:
        """Use these settings, before all others, and this clock. Returns what `end_override` restores."""
        check_setting_names(flags)
        client = self.client
        before = {"flags": self._flags, "clock": client.clock, "keeper": self.keeper, "opened": client.opened_settings}
        before["settings"] = client.__dict__.get("settings")
        self._flags = self._flags | dict(flags)
        client.opened_settings = None
        client.__dict__.pop("settings", None)
        client.clock = clock or client.clock
        self.keeper = self._new_keeper()
        return before

    def end_override(self, before: Mapping[str, Any]) -> None:
        client = self.client
        self._flags, client.clock, self.keeper = before["flags"], before["clock"], before["keeper"]
        client.opened_settings = before["opened"]
        client.__dict__.pop("settings", None)
        if before["settings"] is not None:
            client.settings = before["settings"]

    def _check_same_store(self, before: Settings, now: Settings, flags: Mapping[str, object]) -> None:
        changed = [name for name in STORE_SETTINGS if getattr(before, name) != getattr(now, name)]
        if changed and all(name in flags for name in changed) and not self.client.loop_stores.is_open:
            self.client.opened_settings = None  # the flags name another store, and the first one is closed
            return
        for name in changed:
            one, other = (mask_url(str(getattr(each, name))) for each in (before, now))
            raise ConfigError(
                f"setting {name} has changed: this app has opened its store with {one} ({before.origin[name]}), and "
                f"{other} ({now.origin[name]}) is another one; set it before the first call, or make another Drumbeat",
                name,
            )

    def declared_schedules(self) -> list[NewSchedule]:
        """Complete definitions of all schedules that the code declares.

        Raises:
            ConfigError: a schedule that no worker of this program could run.
        """
        return self.declarations.complete_schedules(self.settings, self.client.declared_queues())

    def _wrap_transactional(self, transactional: Transactional) -> Transactional:
        return transactional if (outbox := self.outbox) is None else outbox.transactional

    @property
    def outbox(self) -> Outbox | None:
        """The relay from the user's own database; None without the setting `outbox`."""
        settings = self.settings
        if settings.outbox is None:
            return None
        if self._outbox is None or self._outbox[0] is not settings:
            app = self._make_app(
                settings.outbox,
                namespace=settings.namespace,
                name=f"{settings.name}.outbox",
                version=settings.version,
                clock=self.clock,
                payload_limit=MAX_PAYLOAD_LIMIT,  # a message is larger than the job in it
                retention=MESSAGE_RETENTION,
                role="both",
                outbox="",
            )
            target = transactional_for(settings.url, namespace=settings.namespace, clock=self.clock)
            self._outbox = settings, Outbox(app, self.store, target, self.clock)
        return self._outbox[1]

    @property
    def companions(self) -> Sequence[Callable[[], AbstractAsyncContextManager[None]]]:
        """Services to run beside the worker of a process."""
        return [] if (outbox := self.outbox) is None else [outbox.run_relay]

    def controller(self, settings: Settings) -> Controller:
        """A new controller, for one worker."""
        from drumbeat.controller import Controller  # imported late: programs that only enqueue need none of it

        return Controller(
            settings,
            self.clock,
            self.events,
            declared=self.declared_schedules(),
            startup_calls=list(self.declarations.startup_calls.values()),
            acquire_lock=self.lock,
        )

    def lock(self, name: str, **options: Unpack[LockOptions]) -> GlobalLock:
        return GlobalLock(self.lock_client(name, options))

    def lock_client(self, name: str, options: LockOptions) -> LockClient:
        """Acquires and releases for `app.lock` and `app.sync.lock`."""
        return LockClient(parse_options(name, options), self)

    async def open_store(self) -> Store:
        """A separate store on the same database; the caller closes it."""
        return await self.client.open_store()

    async def enter(self) -> None:
        """Open the running loop's store, for one more `async with app`."""
        connection = self.client.loop_stores.current()
        await connection.store()
        connection.users += 1

    async def leave(self) -> None:
        """Close what was opened on this loop when the last `async with app` on it ends (a framework's and a test's, say)."""
        connection = self.client.loop_stores.current()
        connection.users -= 1
        if connection.users == 0:
            await self.keeper.close()
            await connection.close()

    async def close(self) -> None:
        await self.keeper.close()
        await self.client.close()

    async def close_with_sync(self) -> None:
        """Close what was opened on this loop, and by sync calls."""
        await self.close()
        sync = SYNC_LOOP.loop
        if sync is not None and sync in self.client.loop_stores.open_stores:
            await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self.close(), sync))
