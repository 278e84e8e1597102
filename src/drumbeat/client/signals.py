"""Send signals to jobs: `app.signal`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from drumbeat.codec import JsonCodec, Unstorable, encode_result
from drumbeat.core.job_query import JobFilter
from drumbeat.core.signals import MAX_PAYLOAD_BYTES, MAX_UNREAD_SIGNALS, NewSignal, SignalAnswer
from drumbeat.errors import AmbiguousKey, InvalidArguments, JobEnded, JobNotFound
from drumbeat.handle import JobHandle, SyncJobHandle
from drumbeat.ids import JobId, new_job_id
from drumbeat.names import check_key, check_name, short_repr
from drumbeat.step_calls import check_signal_name
from drumbeat.store.job_reads import find_jobs, get_job
from drumbeat.store.protocol import Store
from drumbeat.tasks import Task

if TYPE_CHECKING:
    from drumbeat.internals import AppInternals

MAX_SIGNAL_ID = 200


def check_signal_target(
    job: JobId | str | JobHandle[Any] | SyncJobHandle[Any] | None, task: str | Task[..., Any] | None, key: str | None
) -> tuple[JobId | None, str | None]:
    """The id of the job, or the name of its task.

    Raises:
        InvalidArguments: neither or both are given.
    """
    if (job is None) == (task is None) or (task is None) != (key is None):
        raise InvalidArguments("say which job gets the signal: its id, or task= and key=", "job")
    if job is not None:
        given: object = job
        if not isinstance(given, str | JobHandle | SyncJobHandle):
            raise InvalidArguments(f"a job is named by its id or handle, not {short_repr(given)}", "job")
        return JobId(job.id if isinstance(job, JobHandle | SyncJobHandle) else job), None
    return None, task.name if isinstance(task, Task) else task


def build_signal(job: JobId, name: str, payload: Any, id: str | None, codec: JsonCodec) -> NewSignal:
    """
    Raises:
        InvalidArguments: the name, the id or the payload cannot be stored.
    """
    given: object = id
    if given is not None and not (isinstance(given, str) and 0 < len(given) <= MAX_SIGNAL_ID and given.isprintable()):
        problem = f"id must be a text of 1 to {MAX_SIGNAL_ID} printable characters, not {short_repr(given)}"
        raise InvalidArguments(problem, "id")
    try:
        text = encode_result(payload, limit=MAX_PAYLOAD_BYTES, codec=codec)
    except Unstorable as error:
        raise InvalidArguments(error.reason.replace("the result", "payload", 1), "payload") from error
    return NewSignal(id=id or new_job_id(), job=job, name=check_signal_name(name), payload=text)


async def find_job_of_key(store: Store, task: str, key: str) -> JobId:
    """The live job of this task with this key; if there is none, the last one: it may have got this signal by an earlier call.

    Raises:
        AmbiguousKey: there are several that live.
        JobNotFound: there never was one.
    """
    live = await store.steps.find_live(check_name("task", task), check_key(key))
    if len(live) > 1:
        raise AmbiguousKey(task, key, sorted(live))
    if live:
        return live[0]
    for job in await find_jobs(store, JobFilter(task=task, key=key, limit=1, preview=0)):
        return job.id
    raise JobNotFound("", f"no job of task {task!r} has the key {key!r}")


async def check_answer(answer: SignalAnswer, signal: NewSignal, store: Store) -> None:
    """Raises:
    JobNotFound, JobExpired, JobEnded: nothing was stored, there is no such live job.
    InvalidArguments: it has too many unread signals.
    """
    if answer is SignalAnswer.UNKNOWN:
        await get_job(store, signal.job)  # raises JobNotFound or JobExpired
    check_sent(answer, signal)


def check_sent(answer: SignalAnswer, signal: NewSignal) -> None:
    match answer:
        case SignalAnswer.SENT:
            return
        case SignalAnswer.UNKNOWN:
            raise JobNotFound(signal.job)
        case SignalAnswer.TOO_MANY:
            problem = f"job {signal.job} has {MAX_UNREAD_SIGNALS:,} signals that it has not read: nothing was stored"
            raise InvalidArguments(problem, "job")
        case _:
            raise JobEnded(signal.job, answer.value)


class SignalCalls:
    """The part of `Drumbeat` that sends signals."""

    _internals: AppInternals

    async def signal(
        self,
        job: JobId | str | JobHandle[Any] | None = None,
        name: str = "",
        payload: Any = None,
        *,
        task: str | Task[..., Any] | None = None,
        key: str | None = None,
        id: str | None = None,
        conn: Any = None,
    ) -> str:
        """Send a signal to a live job, which gets it from `current_job().wait_for(name)`, now or later, once.

            await app.signal(job.id, "approved", {"by": "ann"})
            await app.signal(task=fulfil, key="order-42", name="approved")

        `payload` is any value that a result may be. With `id`, a text of your own, repeated calls send one signal. With `conn`
        it is sent in your own transaction, as with `task.using(conn=...)`. Returns the signal's id.

        Raises:
            JobNotFound, JobExpired: there is no such job. JobEnded: it has ended.
            AmbiguousKey: several live jobs of the task have this key.
            InvalidArguments: a name or payload that cannot be stored, or 1,000 signals that the job has not read.
        """
        target, of_task = check_signal_target(job, task, key)
        return await self._internals.client.send_signal(target, name, payload, task=of_task, key=key, id=id, conn=conn)
