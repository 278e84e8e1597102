"""`app.sync`: the API of an app for code without an event loop. Calls run on the loop of a separate thread, and block."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Unpack

from drumbeat.admin import SyncAdmin
from drumbeat.client.signals import check_signal_target
from drumbeat.core.job import NewJob
from drumbeat.handle import SyncJobHandle
from drumbeat.ids import JobId
from drumbeat.locks import LockOptions, SyncLock
from drumbeat.loop_check import check_no_loop
from drumbeat.sync_loop import SYNC_LOOP, to_sync
from drumbeat.tasks import Task
from drumbeat.tasks.options import check_new_jobs, check_notify
from drumbeat.workflow_handle import SyncWorkflowHandle

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

    def signal(
        self,
        job: JobId | str | SyncJobHandle[Any] | None = None,
        name: str = "",
        payload: Any = None,
        *,
        task: str | Task[..., Any] | None = None,
        key: str | None = None,
        id: str | None = None,
        conn: Any = None,
    ) -> str:
        """As `app.signal`."""
        check_no_loop("app.sync.signal", "await app.signal")
        client = self._app._internals.client
        target, of_task = check_signal_target(job, task, key)
        if conn is None:
            sending = client.send_signal(target, name, payload, task=of_task, key=key, id=id, conn=None)
            return SYNC_LOOP.run("app.sync.signal", sending)
        if target is None:
            assert of_task is not None and key is not None
            target = SYNC_LOOP.run("app.sync.signal", client.find_job_of_key(of_task, key))
        return client.send_signal_in_transaction_sync(conn, target, name, payload, id)

    def get_workflow(self, id: str) -> SyncWorkflowHandle:
        """As `app.get_workflow`."""
        return SyncWorkflowHandle(self._app.get_workflow(id))

    def enqueue_many(
        self, jobs: Iterable[NewJob[Any]], *, conn: Any = None, notify: bool = True
    ) -> list[SyncJobHandle[Any]]:
        """As `app.enqueue_many`."""
        check_no_loop("app.sync.enqueue_many", "await app.enqueue_many")
        check_notify(conn, notify)
        client = self._app._internals.client
        if conn is not None:
            return client.enqueue_in_transaction_sync(conn, check_new_jobs(jobs, conn=conn), notify)
        handles = SYNC_LOOP.run("app.sync.enqueue_many", client.enqueue_many(check_new_jobs(jobs)))
        return [SyncJobHandle(handle) for handle in handles]
