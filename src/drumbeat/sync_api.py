"""`app.sync`: the API of an app for code without an event loop. Calls run on the loop of a separate thread, and block."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Unpack

from drumbeat.admin import SyncAdmin
from drumbeat.core.job import NewJob
from drumbeat.handle import SyncJobHandle
from drumbeat.locks import LockOptions, SyncLock
from drumbeat.sync_loop import SYNC_LOOP, to_sync
from drumbeat.tasks.loop_check import check_no_loop
from drumbeat.tasks.options import check_new_jobs, check_notify

if TYPE_CHECKING:
    from drumbeat.app import Drumbeat


class SyncApp(SyncAdmin):
    """`app.sync`."""

    def __init__(self, app: Drumbeat) -> None:
        super().__init__(app._internals)
        self._app = app
        self.cancel = to_sync("app.sync.cancel", app.cancel)
        self.history = to_sync("app.sync.history", app.history)
        self.close = to_sync("app.sync.close", app.close)
        self.migrate = to_sync("app.sync.migrate", app.migrate)

    def lock(self, name: str, **options: Unpack[LockOptions]) -> SyncLock:
        """As `app.lock`, for a thread: `with app.sync.lock("sweep") as lock: ...`."""
        return SyncLock(self._app._internals.lock_client(name, options))

    def enqueue_many(
        self, jobs: Iterable[NewJob], *, conn: Any = None, notify: bool = True
    ) -> list[SyncJobHandle[Any]]:
        """As `app.enqueue_many`."""
        check_no_loop("app.sync.enqueue_many", "await app.enqueue_many")
        check_notify(conn, notify)
        client = self._app._internals.client
        if conn is not None:
            return client.enqueue_in_transaction_sync(conn, check_new_jobs(jobs), notify)
        handles = SYNC_LOOP.run("app.sync.enqueue_many", client.enqueue_many(check_new_jobs(jobs)))
        return [SyncJobHandle(handle) for handle in handles]
