"""All exceptions of Drumbeat.

DrumbeatError
+-- ConfigError                 which setting, what it was, what it may be
+-- InvalidArguments            at enqueue: which argument, why
|   `-- ParentResultMismatch    the result of a parent is of another type than the parameter
+-- UnknownTask                 no task of this name is registered here
+-- UniqueConflict              a replay, or a job of a workflow, would make a second live job of one key
+-- WorkflowError               a workflow that cannot be stored or found
|   +-- WorkflowNotFound  WorkflowCancelled  WorkflowConflict
+-- SharesNotTaken              workers died before they took their shares of a fan_out, and no other is left
+-- StartFailed                 a start-up task failed for good: the process must not run jobs
+-- WrongContext                a sync call on a loop's thread, or an async one where no loop runs
+-- StoreError
|   +-- StoreUnavailable        retry; services do, with backoff
|   |   `-- StoreFull           it answers, but has no space left
|   +-- StoreLost
|   +-- SchemaOutOfDate         run `drumbeat migrate`
|   +-- NotTransactional        this engine has no transactions that a job can share
|   +-- ClaimLost               a completion was refused: the job is no longer this worker's
|   `-- TransactionTooLong      it kept every other writer waiting
+-- JobNotFound  JobExpired  NotInJob
+-- AmbiguousKey                several live jobs have this key: name one by its id
+-- JobEnded                    a signal for a job that has ended
+-- SignalTimedOut              raised in a handler: no signal came in time
+-- StepError                   a step that cannot be made or read as asked: the job is a dead letter
+-- JobError                    raised by `result()`
|   +-- JobFailed  JobCancelled  JobNotStarted  JobTimedOut  ResultNotKept
`-- LockError
    +-- LockTimeout  LockLost  LockReentered

Each has its facts as attributes and formats its own message. `SkipRetry`, `RetryLater` and `Snooze`, which task code raises to
control its own retries, are signals, not errors: see `retry.py`.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any


class DrumbeatError(Exception):
    """The root of all errors of this library."""

    def __reduce__(self) -> tuple[Any, ...]:
        # Errors are pickled between processes. Exception would call the class with the message; constructors take facts.
        return rebuild, (type(self), self.args, self.__dict__)


def rebuild(kind: type[DrumbeatError], args: tuple[Any, ...], facts: dict[str, Any]) -> DrumbeatError:
    error = kind.__new__(kind, *args)
    error.__dict__.update(facts)
    return error


class ConfigError(DrumbeatError):
    """A setting, an option of a task or a registration is not acceptable."""

    def __init__(self, problem: str, setting: str | None = None) -> None:
        super().__init__(problem)
        self.setting = setting


class InvalidArguments(DrumbeatError):
    """The arguments or options of a call are not acceptable; nothing was stored."""

    def __init__(self, problem: str, argument: str | None = None) -> None:
        super().__init__(problem)
        self.argument = argument


class ParentResultMismatch(InvalidArguments):
    """A parameter is given the result of another job, and is of another type; nothing was stored."""


class UnknownTask(DrumbeatError):
    """No task of this name is registered in this program."""

    def __init__(self, task: str, known: Iterable[str] = ()) -> None:
        names = sorted(known)
        near = get_close_matches(task, names, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        super().__init__(f"no task {task!r} is registered{hint}")
        self.task, self.known = task, names


class StartFailed(DrumbeatError):
    """A start-up task failed without a retry left, or a lifespan failed: the process ends before its first claim."""

    def __init__(self, task: str, problem: str, *, is_lifespan: bool = False) -> None:
        super().__init__(
            f"lifespan {task!r} failed: {problem}" if is_lifespan else f"start-up task {task!r} failed: {problem}"
        )
        self.task, self.problem = task, problem


class SharesNotTaken(DrumbeatError):
    """Some shares of a `fan_out` were not taken: their workers died, and no other is in the room."""

    def __init__(self, room: str, not_taken: int, sent: int) -> None:
        super().__init__(
            f"room {room!r}: {not_taken} of {sent} shares were taken by no worker: "
            "the workers they were sent to have died, and no other is in the room"
        )
        self.room, self.not_taken, self.sent = room, not_taken, sent


class UniqueConflict(DrumbeatError):
    """A dead letter was not replayed, or jobs with dependencies were not stored: a live job has a unique key of them."""

    def __init__(self, id: str, key: str, live_id: str, *, done: str = "replayed") -> None:
        super().__init__(f"job {id} was not {done}: job {live_id} is live with the same key {key!r}")
        self.id, self.key, self.live_id = id, key, live_id


class WorkflowError(DrumbeatError):
    """A workflow cannot be stored or found; nothing was stored."""

    def __init__(self, problem: str, workflow: str) -> None:
        super().__init__(problem)
        self.workflow = workflow


class WorkflowNotFound(WorkflowError):
    """No workflow of this id is in the store, or no longer."""

    def __init__(self, workflow: str) -> None:
        super().__init__(f"no workflow {workflow}", workflow)


class WorkflowCancelled(WorkflowError):
    """The workflow was cancelled, and nothing can be added to it."""

    def __init__(self, workflow: str) -> None:
        super().__init__(f"workflow {workflow} was cancelled: nothing can be added to it", workflow)


class WorkflowConflict(WorkflowError):
    """Another workflow of this name is live, and this one asked to be the only one."""

    def __init__(self, name: str, live_id: str) -> None:
        super().__init__(f"workflow {name!r} was not stored: {live_id}, of the same name, is live", live_id)
        self.name = name


class WrongContext(DrumbeatError, RuntimeError):
    """A sync call was made on an event loop's thread, or an async one where no loop runs."""

    def __init__(self, api_name: str, instead: str, *, loop_runs: bool) -> None:
        where = "on the thread of a running event loop" if loop_runs else "where no event loop runs"
        super().__init__(f"{api_name} was called {where}: use {instead}")
        self.called, self.instead, self.loop_runs = api_name, instead, loop_runs


class StoreError(DrumbeatError):
    """The store could not do what was asked."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class StoreUnavailable(StoreError):
    """The store did not answer, or not in time; whether the call took effect may be unknown. Retry."""


class StoreFull(StoreUnavailable):
    """The store has no space left: a full disk, or a memory limit. Nothing was stored; retry when there is space. A
    StoreUnavailable, so that whatever waits for an unavailable store also waits for a full one."""


class StoreLost(StoreError):
    """The store is not the same as before: deleted, replaced, or restored from a backup."""


class SchemaOutOfDate(StoreError):
    """This version of Drumbeat cannot use the store's schema."""

    def __init__(self, *, found: int, known: int) -> None:
        if found < known:
            problem = f"this Drumbeat needs {known}: run `drumbeat migrate`, in a Django project `manage.py migrate`"
        else:
            problem = f"newer than this Drumbeat can use (it knows {known}): run `pip install --upgrade drumbeat`"
        super().__init__(f"the store's schema is version {found}, {problem}")
        self.found, self.known = found, known


class NotTransactional(StoreError):
    """This engine cannot complete or enqueue a job inside the caller's own transaction."""

    def __init__(self, engine: str) -> None:
        super().__init__(
            f"{engine} has no transactions that a job can share; use SQLite or PostgreSQL for that, or an outbox to enqueue"
        )
        self.engine = engine


class ClaimLost(StoreError):
    """A job was not completed and its transaction was refused: the claim is no longer current."""

    def __init__(self, id: str, token: int, *, completed: bool = False) -> None:
        super().__init__(
            f"job {id} has been completed already: nothing of this transaction was kept"
            if completed
            else f"job {id} is no longer this worker's: nothing of this transaction was kept"
        )
        self.id, self.token = id, token
        self.completed = completed
        """This claim has completed it before, in an earlier transaction or earlier in this one."""


class TransactionTooLong(StoreError):
    """A handler's transaction exceeded its time limit and was rolled back: all other writers wait for it."""

    def __init__(self, limit: float) -> None:
        super().__init__(
            f"the transaction was open for more than {limit:g} s, in which nobody else can write: it was rolled back; "
            "do what takes time before it"
        )
        self.limit = limit


class JobNotFound(DrumbeatError):
    """No job of this id is in the store or its history."""

    def __init__(self, id: str, problem: str | None = None) -> None:
        super().__init__(f"no job {id}" if problem is None else problem)
        self.id = id


class JobExpired(DrumbeatError):
    """The job is older than the retention of history, and is no longer in the store."""

    def __init__(self, id: str) -> None:
        super().__init__(f"job {id} is no longer known: history of that age has been pruned")
        self.id = id


class NotInJob(DrumbeatError):
    """`current_job()` or `abort_signal()` was called outside a handler."""

    def __init__(self, called: str = "current_job()", where: str = "inside a handler that a worker called") -> None:
        super().__init__(f"no job is running here: {called} works only {where}")
        self.called = called


class AmbiguousKey(DrumbeatError):
    """Several live jobs of a task have this key; nothing was stored."""

    def __init__(self, task: str, key: str, ids: Iterable[str]) -> None:
        self.ids = list(ids)
        super().__init__(f"{len(self.ids)} live jobs of task {task!r} have the key {key!r}: {', '.join(self.ids)}")
        self.task, self.key = task, key


class JobEnded(DrumbeatError):
    """The job has ended, and takes no more signals; nothing was stored."""

    def __init__(self, id: str, state: str) -> None:
        super().__init__(f"job {id} has ended ({state}), and takes no more signals")
        self.id, self.state = id, state


class SignalTimedOut(DrumbeatError):
    """The signal that a job waited for did not come in time."""

    def __init__(self, id: str, signal: str) -> None:
        super().__init__(f"job {id} got no signal {signal!r} in time")
        self.id, self.signal = id, signal


class StepError(DrumbeatError):
    """A step of a running job cannot be made or read as asked. A retry cannot help: the job becomes a dead letter, which keeps
    its other steps; replay it once the program is mended."""

    def __init__(self, id: str, step: str, problem: str) -> None:
        super().__init__(f"step {step!r} of job {id} {problem}" if step else f"a step of job {id} {problem}")
        self.id, self.step, self.problem = id, step, problem


class JobError(DrumbeatError):
    """A job ended without a result. `type` is the name of the exception's class; `traceback` is text, or empty."""

    _end, _shows_type = "failed", True

    def __init__(self, id: str, task: str, *, type: str = "", message: str = "", traceback: str = "") -> None:
        details = [part for part in (type if self._shows_type else "", message) if part]
        super().__init__(f"job {id} ({task}) {': '.join([self._end, *details])}")
        self.id, self.task = id, task
        self.type, self.message, self.traceback = type, message, traceback


class JobFailed(JobError):
    """The job has no retries left, or skipped them; it is a dead letter."""


class JobCancelled(JobError):
    """The job was cancelled before it succeeded."""

    _end, _shows_type = "was cancelled", False


class JobNotStarted(JobError):
    """The job expired: its first attempt had not started in time (`expires=`)."""

    _end, _shows_type = "expired: it did not start in time", False


class JobTimedOut(JobError):
    """The job's last attempt exceeded its timeout; it is a dead letter."""

    _end, _shows_type = "timed out", False


class ResultNotKept(JobError):
    """The job succeeded, but its result could not be stored."""

    _end, _shows_type = "succeeded, but its result was not kept", False


class LockError(DrumbeatError):
    """A lock was not acquired, or was lost."""

    def __init__(self, name: str, problem: str) -> None:
        super().__init__(f"lock {name!r} {problem}")
        self.name = name


class LockTimeout(LockError):
    """The lock was not granted within the caller's timeout."""

    def __init__(self, name: str, waited: float) -> None:
        super().__init__(name, f"was not free within {waited:g} s")
        self.waited = waited


class LockLost(LockError):
    """The lock's lease ended while it was held: another holder may have it now."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(name, f"was lost: {reason}")
        self.reason = reason


class LockReentered(LockError):
    """The same task or thread already holds the lock, and would wait for itself."""

    def __init__(self, name: str) -> None:
        super().__init__(name, "is held by this very task or thread, which would wait for itself: enter it once")
