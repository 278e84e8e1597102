"""The admin and their verbs, as programs use them."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from drumbeat import Drumbeat, JobState
from drumbeat.clock import SYSTEM, FakeClock
from drumbeat.core.job import CancelAnswer, OutcomeKind, PendingView
from drumbeat.core.job_query import JobCounts, JobPage
from drumbeat.durations import from_us
from drumbeat.errors import InvalidArguments, JobNotFound, UniqueConflict, UnknownTask
from drumbeat.tasks import AsyncTask
from tests.app.conftest import ManualWorker
from tests.contract import making
from tests.waiting import until

Charge = AsyncTask[[int], None]


@pytest.fixture
def charge(app: Drumbeat) -> Charge:
    @app.task(queue="critical", retries=7, timeout=30)
    async def charge(customer: int) -> None: ...

    @charge.on_dead
    async def refund(job: Any, error: Any) -> None: ...

    return charge


@pytest.fixture
def mail(app: Drumbeat) -> AsyncTask[[], None]:
    @app.task(queue="low")
    async def mail() -> None: ...

    return mail


async def test_jobs_are_listed_newest_first_and_page_by_page(app: Drumbeat, charge: Charge) -> None:
    handles = await app.enqueue_many([charge.bind(number) for number in range(5)])
    ids = [handle.id for handle in handles][::-1]
    first = await app.jobs.list(limit=3)
    second = await app.jobs.list(limit=3, before=first[-1].id)
    assert [job.id for job in first + second] == ids


async def test_jobs_are_chosen_by_what_they_have_in_common(
    app: Drumbeat, charge: Charge, mail: AsyncTask[[], None], hand: ManualWorker
) -> None:
    first = await charge.using(key="a").enqueue(1)
    await hand.end(OutcomeKind.DEAD)
    second = await charge.using(key="b", delay=60).enqueue(2)
    third = await mail.enqueue()

    async def ids(**wanted: Any) -> set[str]:
        return {job.id for job in await app.jobs.list(**wanted)}

    assert await ids(state="dead") == {first.id}
    assert await ids(state=JobState.PENDING) == {second.id, third.id} | await ids(task="charge.on_dead")
    assert await ids(queue="low") == {third.id}
    assert await ids(task="charge") == {first.id, second.id}
    assert await ids(key="b", task="charge") == {second.id}
    assert await ids(error="boom") == {first.id}
    assert await ids(state=None, queue=None, limit=50) == {first.id, second.id, third.id} | await ids(
        task="charge.on_dead"
    )


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        ({"state": "gone"}, "pending, running, succeeded, dead, cancelled"),
        ({"state": "odd"}, "there is no state 'odd': use pending, .*, ready, retrying, waiting"),
        ({"since": "yesterday"}, "since must be a time such as"),
        ({"until": "2026-11-15T09:30"}, "until must have a timezone"),
        ({"instance": "me"}, "instance must be the id of an instance"),
        ({"id": "01a"}, "id must be the id of a job or its beginning"),
        ({"id": "nonsense"}, "id must be the id of a job or its beginning"),
        ({"queue": "crtical"}, "known are critical"),
        ({"queue": "a b"}, "valid name"),
        ({"task": "chrage"}, "did you mean 'charge'"),
        ({"key": ""}, "key"),
        ({"limit": 0}, "from 1 to"),
        ({"before": "yesterday"}, "id of a job"),
        ({"error": ""}, "part of the error"),
        ({"colour": "red"}, "state"),
    ],
)
async def test_a_filter_that_means_nothing_is_refused_with_what_would(
    app: Drumbeat, charge: Charge, wanted: dict[str, Any], message: str
) -> None:
    with pytest.raises((InvalidArguments, UnknownTask), match=message):
        await app.jobs.list(**wanted)


async def test_jobs_are_found_by_the_word_people_see_by_time_and_by_the_beginning_of_an_id(
    app: Drumbeat, charge: Charge
) -> None:
    ready = await charge.enqueue(1)
    later = await charge.using(delay=3600).enqueue(2)
    made = (await app.jobs.show(ready.id)).created_at

    async def found(**wanted: Any) -> list[str]:
        page = await app.jobs.page(**wanted)
        assert page.next is None
        assert [job.id for job in page.items] == [job.id for job in await app.jobs.list(**wanted)]
        return [job.id for job in page.items]

    assert await found(state="ready") == [ready.id]
    assert await found(state=PendingView.SCHEDULED) == [later.id]
    assert await found(state="retrying") == []
    assert await found(since=made - timedelta(minutes=1), id=later.id[:4]) == [later.id, ready.id]
    assert await found(since=(made + timedelta(minutes=1)).isoformat()) == []
    assert await found(until=made + timedelta(minutes=1), id=ready.id.upper()) == [ready.id]
    assert await app.jobs.counts() == JobCounts(ready=1, scheduled=1)
    assert await app.jobs.counts(state="ready") == JobCounts(ready=1)
    assert await app.dead.page(since=made) == JobPage(items=[], next=None)


async def test_a_known_queue_or_task_without_jobs_is_an_empty_list(app: Drumbeat, charge: Charge) -> None:
    assert await app.jobs.list(queue="critical") == []
    assert await app.jobs.list(task="charge") == []


async def test_a_job_is_shown_with_its_attempts(app: Drumbeat, charge: Charge, hand: ManualWorker) -> None:
    handle = await charge.enqueue(1)
    await hand.end(OutcomeKind.RETRY)
    await hand.end(OutcomeKind.SUCCEEDED)
    job, attempts = await app.jobs.show(handle.id), await app.jobs.attempts(handle.id)
    assert (job.state, job.failures) == (JobState.SUCCEEDED, 1)
    assert [attempt.outcome for attempt in attempts] == ["retry", "succeeded"]


@pytest.mark.parametrize("id", ["nonsense", "", "01a1df41-b512-7f91-b79d-2750073b197a"])
async def test_an_unknown_job_is_not_found_by_any_verb(app: Drumbeat, id: str) -> None:
    for verb in (app.jobs.show, app.jobs.wait, app.jobs.run_now, app.dead.show, app.dead.replay, app.dead.discard):
        with pytest.raises(JobNotFound):
            await verb(id)
    assert await app.jobs.cancel(id) == [CancelAnswer.UNKNOWN]


async def test_wait_gives_the_job_however_it_ended(app: Drumbeat, charge: Charge, hand: ManualWorker) -> None:
    handle = await charge.enqueue(1)
    with pytest.raises(TimeoutError):
        await app.jobs.wait(handle.id, timeout=0)
    await hand.end(OutcomeKind.DEAD)
    assert (await app.jobs.wait(handle.id, timeout=5)).state is JobState.DEAD


async def test_jobs_are_cancelled_by_id_or_by_what_they_have_in_common(
    app: Drumbeat, charge: Charge, mail: AsyncTask[[], None], hand: ManualWorker
) -> None:
    running = await charge.enqueue(1)
    await hand.claim()
    pending = await app.enqueue_many([charge.bind(number) for number in range(1_100)])
    other = await mail.enqueue()
    assert await app.jobs.cancel(pending[0].id) == [CancelAnswer.CANCELLED]
    assert await app.jobs.cancel([pending[0].id, pending[1].id]) == [CancelAnswer.CANCELLED] * 2
    answers = await app.jobs.cancel(queue="critical")
    assert (answers.count(CancelAnswer.CANCELLED), answers.count(CancelAnswer.REQUESTED)) == (1_098, 1)
    assert (await running.job()).cancel_requested
    assert (await other.job()).state is JobState.PENDING


async def test_nothing_is_done_to_all_jobs_by_leaving_something_out(app: Drumbeat, charge: Charge) -> None:
    handle = await charge.enqueue(1)
    for verb in (app.jobs.cancel, app.dead.replay, app.dead.discard):
        with pytest.raises(InvalidArguments, match="say which jobs"):
            await verb()
        with pytest.raises(InvalidArguments, match="say which jobs"):
            await verb(handle.id, task="charge")
    assert (await handle.job()).state is JobState.PENDING


async def test_a_waiting_job_is_run_now_and_others_are_refused(
    app: Drumbeat, charge: Charge, hand: ManualWorker
) -> None:
    handle = await charge.using(delay=600).enqueue(1)
    assert await hand.claim() == []
    assert await app.jobs.run_now(handle.id) == 1
    assert len(await hand.claim()) == 1
    with pytest.raises(InvalidArguments, match="is running"):
        await app.jobs.run_now(handle.id)
    assert await app.jobs.run_now([handle.id]) == 0


async def test_dead_letters_are_listed_shown_replayed_and_discarded(
    app: Drumbeat, mail: AsyncTask[[], None], hand: ManualWorker
) -> None:
    first, second, third = [(await mail.enqueue()).id for _ in range(3)]
    await hand.end(OutcomeKind.DEAD)
    assert [job.id for job in await app.dead.list()] == [third, second, first]
    assert (await app.dead.show(first)).error == making.BOOM
    assert [(answer.id, answer.replayed) for answer in await app.dead.replay(first)] == [(first, True)]
    assert await app.dead.discard(second) == 1
    assert [job.id for job in await app.dead.list()] == [third]
    assert (await app.jobs.show(first)).state is JobState.PENDING
    assert (await app.jobs.show(second)).state is JobState.DEAD


async def test_what_is_no_dead_letter_is_refused(app: Drumbeat, mail: AsyncTask[[], None], hand: ManualWorker) -> None:
    dead = await mail.enqueue()
    await hand.end(OutcomeKind.DEAD)
    await app.dead.discard(dead.id)
    pending = await mail.enqueue()
    for verb in (app.dead.replay, app.dead.discard):
        with pytest.raises(InvalidArguments, match="is pending, not a dead letter"):
            await verb(pending.id)
        with pytest.raises(InvalidArguments, match="discarded"):
            await verb(dead.id)


async def test_dead_letters_are_replayed_by_what_they_have_in_common(
    app: Drumbeat, charge: Charge, mail: AsyncTask[[], None], hand: ManualWorker
) -> None:
    await app.enqueue_many([mail.bind() for _ in range(60)])
    await charge.enqueue(1)
    await hand.end(OutcomeKind.DEAD)
    answers = await app.dead.replay(task="mail")
    assert len(answers) == 60
    assert all(answer.replayed for answer in answers)
    assert [answer.id for answer in answers] == sorted(answer.id for answer in answers)
    assert [job.task for job in await app.dead.list()] == ["charge"]
    assert await app.dead.discard(error="boom") == 1
    assert await app.dead.list() == []


async def test_a_replay_onto_a_live_key_is_refused_with_that_jobs_id(
    app: Drumbeat, mail: AsyncTask[[], None], hand: ManualWorker
) -> None:
    dead = await mail.using(key="a", unique=True).enqueue()
    await hand.end(OutcomeKind.DEAD)
    live = await mail.using(key="a", unique=True).enqueue()
    with pytest.raises(UniqueConflict) as refused:
        await app.dead.replay(dead.id)
    assert (refused.value.live_id, refused.value.key) == (live.id, "a")
    assert [answer.conflict for answer in await app.dead.replay(task="mail")] == [live.id]


@pytest.fixture
async def slow_app(tmp_path: Path) -> AsyncIterator[tuple[Drumbeat, FakeClock]]:
    clock = FakeClock()
    async with Drumbeat(f"sqlite:///{tmp_path}/slow.db", clock=clock) as app:
        yield app, clock


async def test_a_paced_replay_takes_its_time(slow_app: tuple[Drumbeat, FakeClock]) -> None:
    app, clock = slow_app

    @app.task
    async def mail() -> None: ...

    hand = ManualWorker(app, await making.worker(await app._internals.store()))
    await app.enqueue_many([mail.bind() for _ in range(60)])
    await hand.end(OutcomeKind.DEAD)

    async def pending() -> int:
        return len(await app.jobs.list(state="pending", limit=100))

    async with asyncio.TaskGroup() as group:
        replay = group.create_task(app.dead.replay(task="mail", rate=100))
        for replayed in (10, 20, 30, 40, 50):
            await until(lambda: clock.sleepers == 1)
            assert await pending() == replayed
            await clock.advance(0.1)
    assert len(replay.result()) == 60
    assert await pending() == 60


@pytest.mark.parametrize("rate", [0, -1, True, "fast", float("nan")])
async def test_an_impossible_rate_is_refused(app: Drumbeat, rate: Any) -> None:
    with pytest.raises(InvalidArguments, match="rate"):
        await app.dead.replay(task="charge", rate=rate)


async def test_a_paused_queue_gives_nothing_until_it_is_resumed(
    app: Drumbeat, charge: Charge, hand: ManualWorker
) -> None:
    await charge.enqueue(1)
    await app.queues.pause("critical", reason="the bank is closed", by="Ada")
    assert await hand.claim() == []
    [queue] = [queue for queue in await app.queues.list() if queue.name == "critical"]
    assert (queue.ready, queue.paused, queue.paused_reason, queue.paused_by) == (1, True, "the bank is closed", "Ada")
    assert await app.queues.resume("critical")
    assert not await app.queues.resume("critical")
    assert len(await hand.claim()) == 1


async def test_the_lag_of_a_queue_is_how_long_its_oldest_job_has_been_due(app: Drumbeat, charge: Charge) -> None:
    assert await app.queues.lag() == await app.queues.lag("critical") == 0.0
    await charge.using(at=from_us(SYSTEM.now_us() - 3_600_000_000)).enqueue(1)
    await charge.using(delay=3600).enqueue(2)
    [queue] = await app.queues.list()
    assert 3600 <= queue.lag < 3900
    assert 3600 <= await app.queues.lag() < 3900
    await app.queues.pause("critical")
    assert await app.queues.lag() == 0.0
    assert 3600 <= await app.queues.lag("critical") < 3900


async def test_queues_that_the_program_declares_are_listed_without_jobs(
    app: Drumbeat, charge: Charge, mail: AsyncTask[[], None]
) -> None:
    assert [queue.name for queue in await app.queues.list()] == ["critical", "low"]


async def test_an_unknown_queue_cannot_be_paused(app: Drumbeat, charge: Charge) -> None:
    with pytest.raises(InvalidArguments, match="known are critical"):
        await app.queues.pause("crtical")
    with pytest.raises(InvalidArguments, match="known are critical"):
        await app.queues.resume("crtical")


async def test_tasks_are_listed_with_their_jobs_and_their_options(
    app: Drumbeat, charge: Charge, hand: ManualWorker
) -> None:
    await charge.enqueue(1)
    await (await app._internals.store()).jobs.add([making.new_job("elsewhere", queue="other")])
    assert [task.name for task in await app.tasks.list()] == ["charge", "charge.on_dead", "elsewhere", "greet"]
    task = await app.tasks.show("charge")
    assert (task.pending, task.registered, task.queue, task.retries, task.timeout) == (1, True, "critical", 7, 30.0)
    assert task.call == "charge(customer: int) -> None"
    assert task.on_dead == "charge.on_dead"
    elsewhere = await app.tasks.show("elsewhere")
    assert (elsewhere.pending, elsewhere.registered, elsewhere.queue) == (1, False, None)
    with pytest.raises(UnknownTask, match="did you mean 'charge'"):
        await app.tasks.show("chrage")


async def test_instances_are_healthy_while_they_beat(slow_app: tuple[Drumbeat, FakeClock]) -> None:
    app, clock = slow_app
    store = await app._internals.store()
    beating, silent, left = [await making.worker(store) for _ in range(3)]
    await store.instances.deregister(left, "done")
    await clock.advance(3)
    await store.instances.heartbeat(beating, 0)
    assert {instance.id for instance in await app.instances.list()} == {beating, silent}
    assert [instance.id for instance in await app.instances.list(healthy=True)] == [beating]
    assert [instance.id for instance in await app.instances.list(healthy=False)] == [silent]
    assert {instance.id for instance in await app.instances.list(all=True)} == {beating, silent, left}
    assert (await app.instances.show(left)).ended_reason == "done"
    with pytest.raises(InvalidArguments, match="no instance"):
        await app.instances.show("nobody")
