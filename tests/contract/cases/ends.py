"""Every way in which a job can end, each as a generator: it prepares a job and yields its id; then it ends the job."""

from collections.abc import AsyncIterator, Callable

from drumbeat.core.job import JobState, OutcomeKind
from drumbeat.core.schedule import Overlap
from drumbeat.ids import JobId
from drumbeat.store.protocol import Store
from tests.contract.making import add, claim, claimed_one, dead_letter, end, hold, new_job, worker
from tests.contract.scheduling import fire, fired_job, new_schedule

LONG_AGO = 1_000_000
QUEUE = "ends"
"""Of the jobs that end here; no test claims from it."""

End = Callable[[Store], AsyncIterator[JobId]]


def _reported(kind: OutcomeKind, *, cancel: bool = False, **options: object) -> End:
    """Ended by the worker that runs it."""

    async def way(store: Store) -> AsyncIterator[JobId]:
        instance = await worker(store)
        job = await claimed_one(store, instance, queue=QUEUE, **options)
        yield job.id
        if cancel:
            await store.jobs.cancel([job.id])
        unstarted = {"started_at": None, "finished_at": None} if kind is OutcomeKind.EXPIRED else {}
        await end(store, instance, job, kind, **unstarted)

    return way


async def succeeds_later(store: Store) -> AsyncIterator[JobId]:
    """It is claimed after the child was added."""
    instance = await worker(store)
    [id] = await add(store, new_job(queue=QUEUE))
    yield id
    [job] = await claim(store, instance, QUEUE)
    await end(store, instance, job, OutcomeKind.SUCCEEDED)


async def buried(store: Store) -> AsyncIterator[JobId]:
    """Its instance dies, and it is at its limit of crashes."""
    instance = await worker(store)
    job = await claimed_one(store, instance, queue=QUEUE, crash_limit=1)
    yield job.id
    await store.instances.declare_dead(instance, beat=None, started=[hold(job)], reason="silent")


async def buried_when_asked_to_stop(store: Store) -> AsyncIterator[JobId]:
    instance = await worker(store)
    job = await claimed_one(store, instance, queue=QUEUE)
    yield job.id
    await store.jobs.cancel([job.id])
    await store.instances.declare_dead(instance, beat=None, started=[hold(job)], reason="silent")


async def left_when_asked_to_stop(store: Store) -> AsyncIterator[JobId]:
    instance = await worker(store)
    job = await claimed_one(store, instance, queue=QUEUE)
    yield job.id
    await store.jobs.cancel([job.id])
    await store.instances.deregister(instance, "deploy")


async def cancelled_before_it_ran(store: Store) -> AsyncIterator[JobId]:
    [id] = await add(store, new_job(queue=QUEUE))
    yield id
    await store.jobs.cancel([id])


async def cancelled_by_its_key(store: Store) -> AsyncIterator[JobId]:
    [id] = await add(store, new_job(queue=QUEUE, key="k"))
    yield id
    await store.jobs.cancel_keys("greet", ["k"])


async def cancelled_by_its_schedule(store: Store) -> AsyncIterator[JobId]:
    """The next fire cancels the job of the one before."""
    yield await fired_job(store, new_schedule(queue=QUEUE, overlap=Overlap.CANCEL))
    await fire(store, "nightly", 2)


async def swept_as_expired(store: Store) -> AsyncIterator[JobId]:
    [id] = await add(store, new_job(queue=QUEUE, expires_at=LONG_AGO))
    yield id
    await store.jobs.expire(100)


async def blocked_for_too_long(store: Store) -> AsyncIterator[JobId]:
    instance = await worker(store)
    job = await claimed_one(store, instance, queue=QUEUE)
    await end(store, instance, job, OutcomeKind.BLOCKED, blocked_on="version:greet@s9", started_at=None)
    yield job.id
    await store.jobs.expire_blocked("version:", await store.inspect.now() + 1, 100)


async def discarded(store: Store) -> AsyncIterator[JobId]:
    job = await dead_letter(store, await worker(store), queue=QUEUE)
    yield job.id
    await store.jobs.discard([job.id])


ENDS: dict[str, tuple[End, JobState]] = {
    "success": (_reported(OutcomeKind.SUCCEEDED), JobState.SUCCEEDED),
    "success of a pending one": (succeeds_later, JobState.SUCCEEDED),
    "death": (_reported(OutcomeKind.DEAD), JobState.DEAD),
    "crash at the limit": (_reported(OutcomeKind.CRASHED, crash_limit=1), JobState.DEAD),
    "burial at the limit": (buried, JobState.DEAD),
    "blocked for too long": (blocked_for_too_long, JobState.DEAD),
    "discard": (discarded, JobState.DEAD),
    "cancelled run": (_reported(OutcomeKind.CANCELLED, cancel=True), JobState.CANCELLED),
    "retry that is cancelled": (_reported(OutcomeKind.RETRY, cancel=True), JobState.CANCELLED),
    "burial of a cancelled run": (buried_when_asked_to_stop, JobState.CANCELLED),
    "goodbye with a cancelled run": (left_when_asked_to_stop, JobState.CANCELLED),
    "cancelled before it ran": (cancelled_before_it_ran, JobState.CANCELLED),
    "cancelled by key": (cancelled_by_its_key, JobState.CANCELLED),
    "cancelled by its schedule": (cancelled_by_its_schedule, JobState.CANCELLED),
    "expired at its worker": (_reported(OutcomeKind.EXPIRED, expires_at=LONG_AGO), JobState.EXPIRED),
    "expired by the sweep": (swept_as_expired, JobState.EXPIRED),
}
"""By name: the way, and the state that the job is in afterwards."""
