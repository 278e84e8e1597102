"""Why a job is not running: every reason, found in a real store, on every engine."""

import asyncio
from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from typing import Any

import pytest

from drumbeat import Drumbeat
from drumbeat.admin import Explanation, Reason, ReasonKind
from drumbeat.core.claim import blocked_on_task, blocked_on_version
from drumbeat.core.instance import Role
from drumbeat.core.job import Failure, OutcomeKind
from drumbeat.core.lock import NewTicket, describe_job
from drumbeat.core.schedule import Overlap
from drumbeat.core.suspension import StepKind, Suspension
from drumbeat.durations import from_us
from drumbeat.errors import JobNotFound
from drumbeat.ids import InstanceId, JobId
from drumbeat.store.protocol import Store
from tests.contract import making, scheduling
from tests.contract.making import HOUR
from tests.waiting import until
from tests.worker.worker_harness import run_worker


@pytest.fixture
async def app(store_url: str, coordination: str | None) -> AsyncIterator[Drumbeat]:
    async with Drumbeat(store_url, coordination=coordination) as app:
        yield app


@pytest.fixture
async def store(app: Drumbeat) -> Store:
    return await app._internals.store()


async def added(store: Store, **options: Any) -> JobId:
    [id] = await making.add(store, making.new_job(**options))
    return id


async def kinds(app: Drumbeat, id: str) -> list[str]:
    return [reason.kind.value for reason in (await app.jobs.explain(id)).reasons]


async def only(app: Drumbeat, id: str) -> Reason:
    [reason] = (await app.jobs.explain(id)).reasons
    return reason


async def parked(store: Store, blocked_on: str) -> JobId:
    """A job that a worker met and could not run."""
    passer_by = await making.worker(store)
    job = await making.claimed_one(store, passer_by)
    await making.end(store, passer_by, job, OutcomeKind.BLOCKED, blocked_on=blocked_on, started_at=None)
    await store.instances.deregister(passer_by, "done")
    return job.id


async def claimed_by(store: Store, **options: Any) -> tuple[InstanceId, JobId]:
    worker = await making.worker(store)
    return worker, (await making.claimed_one(store, worker, **options)).id


async def enter(store: Store, lock: str, what: str, **options: Any) -> Any:
    facts: dict[str, Any] = {"id": f"{lock}/{what}", "lease": HOUR, "owner": "shop here:1"} | options
    return await store.locks.acquire(NewTicket(lock=lock, what=what, **facts))


async def test_a_job_before_its_run_time_is_not_due(app: Drumbeat, store: Store) -> None:
    await making.worker(store)
    run_at = await store.inspect.now() + HOUR
    id = await added(store, run_at=run_at)
    found = await app.jobs.explain(id)
    assert (found.job, found.view) == (id, "scheduled")
    [reason] = found.reasons
    assert reason.kind is ReasonKind.NOT_DUE
    assert reason.facts == {"until": from_us(run_at).isoformat().replace("+00:00", "Z"), "put_off": False}
    assert "(in 59m 59s)" in reason.text


async def test_a_snoozed_job_was_put_off(app: Drumbeat, store: Store) -> None:
    worker = await making.worker(store)
    job = await making.claimed_one(store, worker)
    await making.end(store, worker, job, OutcomeKind.SNOOZED, delay=HOUR)
    reason = await only(app, job.id)
    assert (reason.kind, reason.facts["put_off"]) == (ReasonKind.NOT_DUE, True)


async def test_a_job_that_failed_tells_its_next_attempt_and_its_last_error(app: Drumbeat, store: Store) -> None:
    worker = await making.worker(store)
    job = await making.claimed_one(store, worker, retries=5)
    await making.end(store, worker, job, OutcomeKind.RETRY, delay=HOUR)
    found = await app.jobs.explain(job.id)
    [reason] = found.reasons
    assert (found.view, reason.kind) == ("retrying", ReasonKind.RETRYING)
    assert (reason.facts["attempt"], reason.facts["of"], reason.facts["error"]) == (2, 6, "ValueError: boom")
    assert reason.text.startswith("attempt 2 of 6 comes at ")
    assert reason.text.endswith("the last run ended with ValueError: boom")


async def test_a_password_in_an_error_is_hidden(app: Drumbeat, store: Store) -> None:
    failure = Failure("app.DatabaseDown", "no answer from postgresql://ada:hunter2@db/app", "")
    worker = await making.worker(store)
    retried, dead = await making.claimed_one(store, worker), await making.claimed_one(store, worker)
    await making.end(store, worker, retried, OutcomeKind.RETRY, delay=HOUR, error=failure)
    await making.end(store, worker, dead, OutcomeKind.DEAD, error=failure)
    for id in (retried.id, dead.id):
        reason = await only(app, id)
        assert reason.facts["error"] == "DatabaseDown: no answer from postgresql://ada:•••@db/app"
        assert "hunter2" not in reason.text and "ada:•••@db" in reason.text


async def test_the_number_of_attempts_may_be_the_task_s_own(app: Drumbeat, store: Store) -> None:
    worker = await making.worker(store)
    job = await making.claimed_one(store, worker)
    await making.end(store, worker, job, OutcomeKind.RETRY, delay=HOUR)
    assert (await only(app, job.id)).facts["of"] is None

    @app.task(retries=3)
    async def greet(name: str) -> None: ...

    assert (await only(app, job.id)).facts["of"] == 4


async def test_a_paused_queue_tells_by_whom_since_when_and_why(app: Drumbeat, store: Store) -> None:
    await making.worker(store)
    id = await added(store)
    await app.queues.pause("default", by="ada", reason="the bank is closed")
    reason = await only(app, id)
    assert reason.kind is ReasonKind.QUEUE_PAUSED
    [queue] = await app.queues.list()
    assert queue.paused_at is not None
    assert reason.facts == {
        "queue": "default",
        "by": "ada",
        "reason": "the bank is closed",
        "since": queue.paused_at.isoformat().replace("+00:00", "Z"),
    }
    assert "paused by ada" in reason.text and "(the bank is closed)" in reason.text
    await app.queues.resume("default")
    assert await kinds(app, id) == ["next"]


async def test_without_any_instance_no_worker_is_alive(app: Drumbeat, store: Store) -> None:
    reason = await only(app, await added(store))
    assert reason.kind is ReasonKind.NO_WORKER
    assert reason.facts == {"instances": 0, "silent": 0}


async def test_a_controller_is_no_worker(app: Drumbeat, store: Store) -> None:
    await making.worker(store, roles=(Role.CONTROLLER,), queues=())
    reason = await only(app, await added(store))
    assert (reason.kind, reason.facts["instances"]) == (ReasonKind.NO_WORKER, 1)
    assert "only controllers are alive" in reason.text


async def test_a_worker_that_fell_silent_is_not_counted_as_alive(app: Drumbeat, store: Store) -> None:
    await making.worker(store)
    id = await added(store)
    assert await kinds(app, id) == ["next"]
    app.configure({"heartbeat": 0.05, "dead_after": 0.5})

    async def fell_silent() -> Reason | None:
        reason = await only(app, id)
        return reason if reason.kind is ReasonKind.NO_WORKER else None

    reason = await until(fell_silent)
    assert reason.facts == {"instances": 0, "silent": 1}
    assert "1 process fell silent" in reason.text


async def test_no_worker_takes_the_queue(app: Drumbeat, store: Store) -> None:
    await making.worker(store, queues=("critical", "low"))
    reason = await only(app, await added(store))
    assert reason.kind is ReasonKind.NO_WORKER_FOR_QUEUE
    assert reason.facts == {"queue": "default", "workers": 1, "taken": "critical, low"}


async def test_no_worker_knows_the_task_and_the_closest_name_is_given(app: Drumbeat, store: Store) -> None:
    await making.worker(store)
    reason = await only(app, await added(store, task="gret"))
    assert (reason.kind, reason.facts["nearest"]) == (ReasonKind.NO_WORKER_FOR_TASK, "greet")
    assert "the nearest that they know is 'greet'" in reason.text


async def test_who_knows_the_task_may_take_other_queues_only(app: Drumbeat, store: Store) -> None:
    await making.worker(store, tasks={"other": "s1"})
    await making.worker(store, queues=("low",))
    reason = await only(app, await added(store))
    assert (reason.kind, reason.facts["known_on"]) == (ReasonKind.NO_WORKER_FOR_TASK, "low")


async def test_a_blocked_job_waits_until_a_worker_knows_its_task(app: Drumbeat, store: Store) -> None:
    id = await parked(store, blocked_on_task("greet"))
    await making.worker(store, tasks={"other": "s1"})
    found = await app.jobs.explain(id)
    assert (found.view, [reason.kind for reason in found.reasons]) == ("waiting", [ReasonKind.NO_WORKER_FOR_TASK])
    await making.worker(store)
    assert await kinds(app, id) == ["next"]


async def test_a_job_of_another_version_waits_for_a_worker_of_that_version(app: Drumbeat, store: Store) -> None:
    id = await parked(store, blocked_on_version("greet", "s1"))
    await making.worker(store, tasks={"greet": "s2"})
    reason = await only(app, id)
    assert reason.kind is ReasonKind.OTHER_VERSION
    assert (reason.facts["signature"], reason.facts["have"]) == ("s1", "s2")
    await making.worker(store)
    assert await kinds(app, id) == ["next"]


async def test_another_version_that_nobody_has_tried_yet_is_no_reason(app: Drumbeat, store: Store) -> None:
    await making.worker(store, tasks={"greet": "s2"})
    assert await kinds(app, await added(store)) == ["next"]


async def test_a_fire_waits_for_its_schedule_behind_the_job_before(app: Drumbeat, store: Store) -> None:
    await making.worker(store)
    first = await scheduling.fired_job(store, scheduling.new_schedule(overlap=Overlap.QUEUE))
    [second] = (await scheduling.fire(store, "nightly", 2)).jobs
    found = await app.jobs.explain(second)
    [reason] = found.reasons
    assert (found.view, reason.kind) == ("waiting", ReasonKind.BEHIND_JOB)
    assert reason.facts == {"schedule": "nightly", "behind": first, "overlap": "queue"}
    assert reason.text == f"it waits for schedule 'nightly' behind job {first}, which has not ended"


async def test_full_slots_tell_how_many_there_are_and_how_many_jobs_are_before(app: Drumbeat, store: Store) -> None:
    worker = await making.worker(store, concurrency=2)
    for _ in range(2):
        await making.claimed_one(store, worker)
    await store.instances.heartbeat(worker, 2)
    ids = [await added(store, priority=priority) for priority in (5, 5, 5, 1)]
    reason = await only(app, ids[2])
    assert reason.kind is ReasonKind.SLOTS_FULL
    assert reason.facts == {"queue": "default", "before": 3, "slots": 2, "taken": 2, "workers": 1}
    assert reason.text == "all 2 slots of 1 worker are taken, and 3 jobs are before it in queue 'default'"
    first = await only(app, ids[3])
    assert (first.facts["before"], first.text) == (
        0,
        "all 2 slots of 1 worker are taken, and it is the next in queue 'default'",
    )


async def test_with_free_slots_the_jobs_before_it_are_counted(app: Drumbeat, store: Store) -> None:
    await making.worker(store)
    first, second = [await added(store) for _ in range(2)]
    reason = await only(app, second)
    assert (reason.kind, reason.facts["before"], reason.facts["taken"]) == (ReasonKind.JOBS_BEFORE, 1, 0)
    reason = await only(app, first)
    assert (reason.kind, reason.facts["before"]) == (ReasonKind.NEXT, 0)


async def test_a_job_long_ready_for_no_reason_points_to_the_log(app: Drumbeat, store: Store) -> None:
    await making.worker(store)
    id = await added(store, run_at=await store.inspect.now() - HOUR)
    assert "though it has been ready for 1h" in (await only(app, id)).text


async def test_all_reasons_are_given_the_decisive_one_first(app: Drumbeat, store: Store) -> None:
    id = await added(store, delay=HOUR)
    await store.jobs.pause_queue("default", by="ada", reason="")
    assert await kinds(app, id) == ["not_due", "queue_paused", "no_worker"]


async def test_a_running_job_waits_for_a_lock_at_its_place_behind_another_job(app: Drumbeat, store: Store) -> None:
    worker, id = await claimed_by(store)
    holder, before = [(await making.claimed_one(store, worker)).id for _ in range(2)]
    for what in (describe_job(holder), "somebody", describe_job(before), describe_job(id)):
        await enter(store, "sweep", what)
    await enter(store, "another", describe_job(holder))
    found = await app.jobs.explain(id)
    assert found.view == "running"
    lock, running = found.reasons
    assert (lock.kind, running.kind) == (ReasonKind.LOCK, ReasonKind.RUNNING)
    facts = {"lock": "sweep", "place": 3, "limit": 1, "per": None}
    assert lock.facts == facts | {"behind": before, "holder": holder, "owner": "shop here:1"}
    assert lock.text.startswith(f"it runs, and waits for lock 'sweep' at place 3 behind job {before}; job {holder} has")
    assert await kinds(app, holder) == ["running"]


async def test_the_first_in_line_is_behind_the_holder(app: Drumbeat, store: Store) -> None:
    _, id = await claimed_by(store)
    await enter(store, "sweep", "")
    await enter(store, "sweep", describe_job(id))
    lock = (await app.jobs.explain(id)).reasons[0]
    assert (lock.facts["place"], lock.facts["behind"], lock.facts["holder"]) == (1, None, None)
    assert "at place 1 behind shop here:1, which has held it since" in lock.text


async def test_a_running_job_waits_for_a_rate_window(app: Drumbeat, store: Store) -> None:
    _, id = await claimed_by(store)
    seen = await enter(store, "edgar", "", per=HOUR)
    await store.locks.release([seen.ticket])
    await enter(store, "edgar", describe_job(id), per=HOUR)
    rate, running = (await app.jobs.explain(id)).reasons
    assert (rate.kind, running.kind) == (ReasonKind.RATE, ReasonKind.RUNNING)
    lock = await app.locks.show("edgar")
    assert lock.opens_at is not None
    assert (rate.facts["place"], rate.facts["limit"], rate.facts["per"]) == (1, 1, HOUR / 1e6)
    assert "its rate window (1 per 1h) is full, and opens at" in rate.text
    opens_at = datetime.fromisoformat(str(rate.facts["opens_at"]))
    assert abs(opens_at - lock.opens_at) < timedelta(seconds=1)


async def test_a_lock_that_a_handler_waits_for_is_found(app: Drumbeat) -> None:
    @app.task
    async def sweep() -> None:
        async with app.lock("sweep"):
            pass

    async with run_worker(app), app.lock("sweep"):
        job = await sweep.enqueue()
        expected = ["lock", "running"]

        async def found() -> bool:
            return await kinds(app, job.id) == expected

        await until(found)
        reason = (await app.jobs.explain(job.id)).reasons[0]
        assert (reason.facts["lock"], reason.facts["place"]) == ("sweep", 1)
        await job.cancel()
        await app.jobs.wait(job.id, timeout=10)


@pytest.mark.parametrize("engine", ["pair"])
async def test_a_lock_in_a_second_store_is_found_as_well(app: Drumbeat, store: Store) -> None:
    _, id = await claimed_by(store)
    await enter(store, "sweep", "")
    await enter(store, "sweep", describe_job(id))
    assert await kinds(app, id) == ["lock", "running"]


async def test_a_running_job_tells_since_when_and_where(app: Drumbeat, store: Store) -> None:
    worker, id = await claimed_by(store)
    reason = await only(app, id)
    job = await app.jobs.show(id)
    assert job.started_at is not None
    assert reason.kind is ReasonKind.RUNNING
    assert reason.facts == {
        "since": job.started_at.isoformat().replace("+00:00", "Z"),
        "instance": worker,
        "attempt": 1,
    }


async def test_a_running_job_that_was_asked_to_stop_says_so(app: Drumbeat, store: Store) -> None:
    _, id = await claimed_by(store)
    await app.jobs.cancel(id)
    assert await kinds(app, id) == ["cancelling", "running"]


async def test_a_job_of_a_silent_worker_is_not_said_to_run(app: Drumbeat, store: Store) -> None:
    worker, id = await claimed_by(store)
    app.configure({"heartbeat": 0.05, "dead_after": 0.5})

    async def lost() -> Explanation | None:
        found = await app.jobs.explain(id)
        return found if found.reasons[0].kind is ReasonKind.WORKER_SILENT else None

    [reason] = (await until(lost)).reasons
    assert reason.facts["instance"] == worker
    assert reason.text.endswith("nobody is alive to free it: start a worker")


@pytest.mark.parametrize("kind", [OutcomeKind.SUCCEEDED, OutcomeKind.DEAD, OutcomeKind.CANCELLED])
async def test_a_job_that_ended_says_how(app: Drumbeat, store: Store, kind: OutcomeKind) -> None:
    worker = await making.worker(store)
    job = await making.claimed_one(store, worker)
    await making.end(store, worker, job, kind)
    found = await app.jobs.explain(job.id)
    [reason] = found.reasons
    assert (found.view, reason.kind, reason.facts["state"]) == (kind.value, ReasonKind.ENDED, kind.value)
    assert ("ValueError: boom" in reason.text) == (kind is OutcomeKind.DEAD)


async def test_an_id_of_no_job_is_refused(app: Drumbeat) -> None:
    with pytest.raises(JobNotFound):
        await app.jobs.explain("nobody")


async def test_code_without_a_loop_may_ask_as_well(app: Drumbeat, store: Store) -> None:
    id = await added(store)
    found = await asyncio.to_thread(app.sync.jobs.explain, id)
    assert [reason.kind for reason in found.reasons] == [ReasonKind.NO_WORKER]


async def test_a_job_that_sleeps_or_waits_for_a_signal(app: Drumbeat, store: Store) -> None:
    instance = await making.worker(store)
    asleep, waiting = await making.claimed_one(store, instance), await making.claimed_one(store, instance)
    nap = Suspension(kind=StepKind.SLEEP, name="sleep")
    await making.end(store, instance, asleep, OutcomeKind.SUSPENDED, delay=HOUR, suspension=nap)
    approval = Suspension(kind=StepKind.WAIT, name="approved", signal="approved")
    await making.end(store, instance, waiting, OutcomeKind.SUSPENDED, delay=HOUR, suspension=approval)
    reason = (await app.jobs.explain(asleep.id)).reasons[0]
    assert reason.kind is ReasonKind.ASLEEP and reason.text.startswith("it is asleep until ")
    reason = (await app.jobs.explain(waiting.id)).reasons[0]
    assert (reason.kind, reason.facts["signal"]) == (ReasonKind.SIGNAL, "approved")
    assert reason.text.startswith("it waits for the signal 'approved' until ")
