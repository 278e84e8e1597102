"""`app.lock(...)` for tasks and `app.sync.lock(...)` for threads: the context managers around `LockClient`."""

import asyncio
import contextlib
import threading
from typing import TYPE_CHECKING, Any

from drumbeat.context import CURRENT_JOB
from drumbeat.core.lock import describe_job
from drumbeat.errors import LockError, LockLost, WrongContext
from drumbeat.locks.lock_client import HeldLock, LockClient
from drumbeat.locks.ticket import Ticket
from drumbeat.sync_loop import SYNC_LOOP


class GlobalLock:
    """The type of `app.lock(...)`. It may be kept and entered again, also by several tasks at once."""

    def __init__(self, client: LockClient) -> None:
        self._client = client
        self._blocks: dict[object, _LockedBlock] = {}

    if not TYPE_CHECKING:  # type checkers refuse it as it is

        def __enter__(self):
            raise _wrong_with("`with app.lock`")

        def __exit__(self, *_): ...

    async def __aenter__(self) -> HeldLock:
        task = asyncio.current_task()
        assert task is not None
        ticket = self._client.new_ticket(task, asyncio.get_running_loop())
        held = await self._client.acquire(ticket, current_job_label())
        block = self._blocks[task] = _LockedBlock(ticket, task)
        if self._client.request.cancel_on_loss:
            ticket.lost.add_callback(block.interrupt)
        return held

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, *_: object) -> None:
        block = self._pop_block()
        reason = block.end()
        if block.was_cancelled:
            is_own = block.task.uncancel() <= block.cancelling
            if kind is None or not issubclass(kind, asyncio.CancelledError):
                # The block ended before the cancellation arrived, which would hit the code after it.
                with contextlib.suppress(asyncio.CancelledError):
                    await self._client.clock.sleep(0)
            elif is_own:
                kind = None
        await self._client.release(block.ticket, wait=reason is None)
        if reason is not None and kind is None and self._client.request.cancel_on_loss:
            raise LockLost(block.ticket.lock, reason) from error

    def _pop_block(self) -> "_LockedBlock":
        task: object = asyncio.current_task()
        if task not in self._blocks:
            # Released by another task, as fixtures and exit stacks do: fine if there is only one holder.
            if len(self._blocks) != 1:
                raise LockError(
                    self._client.request.name, "is not held by this task or thread: leave it where it was entered"
                )
            [task] = self._blocks
        return self._blocks.pop(task)


class _LockedBlock:
    """The block under the lock: cancelled when the lock is lost."""

    def __init__(self, ticket: Ticket, task: "asyncio.Task[Any]") -> None:
        self.ticket = ticket
        self.task = task
        self.cancelling = task.cancelling()
        self.was_cancelled = False
        self._is_inside = True

    def interrupt(self) -> None:
        """Cancel the block: the lock is lost. Called in any thread."""
        with contextlib.suppress(RuntimeError):  # its loop is closed
            self.ticket.loop.call_soon_threadsafe(self._cancel)

    def end(self) -> str | None:
        """The block has ended. Returns why the lock was lost, if it was."""
        self._is_inside = False
        return self.ticket.lost.reason

    def _cancel(self) -> None:
        if self._is_inside:
            self.was_cancelled = self.task.cancel(f"lock {self.ticket.lock!r} was lost")


class SyncLock:
    """The type of `app.sync.lock(...)`, for threads without a loop.

    A thread cannot be cancelled: call `lock.check()` or `lock.lost` in the block. LockLost is raised at its end.
    """

    def __init__(self, client: LockClient) -> None:
        self._client = client
        self._tickets: dict[int, Ticket] = {}

    if not TYPE_CHECKING:

        async def __aenter__(self):
            raise _wrong_with("`async with app.sync.lock`")

        async def __aexit__(self, *_): ...

    def __enter__(self) -> HeldLock:
        if asyncio._get_running_loop() is not None:
            raise _wrong_with("`with app.sync.lock`")
        owner, label, tickets = threading.get_ident(), current_job_label(), list[Ticket]()

        async def acquire() -> HeldLock:
            tickets.append(self._client.new_ticket(owner, asyncio.get_running_loop()))
            return await self._client.acquire(tickets[0], label)

        try:
            held = SYNC_LOOP.run("app.sync.lock", acquire())
        except BaseException:  # Ctrl-C may arrive just after the grant
            for ticket in tickets:
                self._client.keeper.abandon(ticket)
            raise
        self._tickets[owner] = tickets[0]
        return held

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        ticket = self._tickets.pop(threading.get_ident())
        reason = ticket.lost.reason
        SYNC_LOOP.run("app.sync.lock", self._client.release(ticket, wait=reason is None))
        if reason is not None and kind is None and self._client.request.cancel_on_loss:
            raise LockLost(ticket.lock, reason)


def _wrong_with(used: str) -> WrongContext:
    """Of the four ways to enter a lock, two fit; the error names the one that fits here."""
    loop_runs = asyncio._get_running_loop() is not None
    return WrongContext(used, "`async with app.lock`" if loop_runs else "`with app.sync.lock`", loop_runs=loop_runs)


def current_job_label() -> str:
    """Describes a lock's holder to operators: the running job, or nothing."""
    job = CURRENT_JOB.get(None)
    return "" if job is None else describe_job(job.id)
