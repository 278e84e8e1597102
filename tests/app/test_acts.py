"""Calls by a task's name, replay, run now, and bulk actions, as programs make them."""

import asyncio
from decimal import Decimal
from typing import Any

import pytest

from drumbeat import Drumbeat, JobState
from drumbeat.admin.bulk import apply_to_all, select_jobs
from drumbeat.clock import FakeClock
from drumbeat.core.job import OutcomeKind
from drumbeat.errors import InvalidArguments, UniqueConflict, UnknownTask
from drumbeat.ids import new_job_id
from drumbeat.tasks import AsyncTask
from tests.app.conftest import ManualWorker
from tests.contract import making
from tests.waiting import until

Charge = AsyncTask[[int, Decimal], None]


@pytest.fixture
def charge(app: Drumbeat) -> Charge:
    @app.task(queue="critical")
    async def charge(customer: int, amount: Decimal = Decimal("1.00")) -> None: ...

    return charge


async def test_a_call_by_name_is_the_call_that_a_program_makes(app: Drumbeat, charge: Charge) -> None:
    by_name = await app.jobs.enqueue("charge", {"customer": 42, "amount": "9.90"}, key="a", priority=1)
    by_text = await app.jobs.enqueue("charge", ' {"customer": 42, "amount": "9.90"} ')
    in_code = await charge.using(key="a", priority=1).enqueue(42, amount=Decimal("9.90"))  # type: ignore[call-arg]
    jobs = [await handle.job() for handle in (by_name, by_text, in_code)]
    assert {(job.task, job.queue, job.args, job.signature) for job in jobs} == {
        ("charge", "critical", '{"customer":42,"amount":"9.90"}', charge.signature.hash)
    }
    assert [(job.key, job.priority) for job in jobs] == [("a", 1), (None, 5), ("a", 1)]


async def test_a_number_is_stored_as_it_was_written(app: Drumbeat) -> None:
    @app.task
    async def keep(value: Any) -> None: ...

    text = '{"value":[9007199254740993,9223372036854775807,1.10]}'
    assert (await (await app.jobs.enqueue("keep", text)).job()).args == text
    with pytest.raises(InvalidArguments, match="beyond 64 bits"):
        await app.jobs.enqueue("keep", '{"value": 18446744073709551617}')


@pytest.mark.parametrize(
    ("task", "args", "options", "argument"),
    [
        ("charge", '{"customer": "ada"}', {}, "customer"),
        ("charge", "{}", {}, "customer"),
        ("charge", '{"customer": 1, "colour": 2}', {}, "colour"),
        ("charge", "[1]", {}, "args"),
        ("charge", "{", {}, "args"),
        ("charge", '{"customer": 1, "x": "\\u0000"}', {}, "args"),
        ("charge", '{"customer": 1}', {"queue": "nowhere"}, "queue"),
        ("charge", '{"customer": 1}', {"colour": 2}, "colour"),
        ("charge", {"customer": object()}, {}, "args"),
        ("a b", "{}", {}, "task"),
    ],
)
async def test_a_call_that_does_not_fit_is_refused_with_the_argument(
    app: Drumbeat, charge: Charge, task: str, args: Any, options: dict[str, Any], argument: str
) -> None:
    with pytest.raises(InvalidArguments) as refused:
        await app.jobs.enqueue(task, args, **options)
    assert refused.value.argument == argument
    assert await app.jobs.list() == []


async def test_an_unknown_task_is_refused_and_the_closest_name_given(app: Drumbeat, charge: Charge) -> None:
    await making.worker(await app._internals.store(), tasks={"refund": "abc"})
    with pytest.raises(UnknownTask, match="did you mean 'refund'"):
        await app.jobs.enqueue("refnud")


async def test_a_call_of_a_task_elsewhere_goes_where_its_last_job_was(app: Drumbeat) -> None:
    store = await app._internals.store()
    await making.worker(store, queues=("one", "two"), tasks={"refund": "old"})
    await making.worker(store, queues=("one", "two"), tasks={"refund": "new"})
    with pytest.raises(InvalidArguments, match="say which queue; those of its workers are one, two"):
        await app.jobs.enqueue("refund")
    first = await (await app.jobs.enqueue("refund", queue="two")).job()
    second = await (await app.jobs.enqueue("refund")).job()
    assert [(job.queue, job.signature) for job in (first, second)] == [("two", "new")] * 2


async def test_a_pending_job_is_run_now_and_a_dead_letter_is_replayed(
    app: Drumbeat, charge: Charge, hand: ManualWorker
) -> None:
    later = await charge.using(delay=60).enqueue(1)  # type: ignore[call-arg]
    assert await app.jobs.run_now(later.id) == 1
    assert (await later.job()).state is JobState.PENDING
    await hand.end(OutcomeKind.DEAD)
    with pytest.raises(InvalidArguments, match=r"is dead: only a pending job can be run now; replay .* dead.replay"):
        await app.jobs.run_now(later.id)
    assert [answer.replayed for answer in await app.dead.replay(later.id)] == [True]
    assert (await later.job()).replays == 1
    await hand.end(OutcomeKind.SUCCEEDED)
    for verb in (app.jobs.run_now, app.dead.replay):
        with pytest.raises(InvalidArguments, match="succeeded"):
            await verb(later.id)


async def test_a_replay_says_which_live_job_has_the_key(app: Drumbeat, charge: Charge, hand: ManualWorker) -> None:
    dead = await charge.using(key="k", unique=True).enqueue(1)  # type: ignore[call-arg]
    await hand.end(OutcomeKind.DEAD)
    live = await charge.using(key="k", unique=True).enqueue(1)  # type: ignore[call-arg]
    with pytest.raises(UniqueConflict) as conflict:
        await app.dead.replay(dead.id)
    assert conflict.value.live_id == live.id


async def test_dead_letters_are_selected_oldest_first_before_they_are_changed(
    app: Drumbeat, charge: Charge, hand: ManualWorker
) -> None:
    await app.enqueue_many([charge.bind(number) for number in range(600)])  # type: ignore[call-arg]
    while await hand.end(OutcomeKind.DEAD):
        pass
    letters = await app.dead.select(task="charge")
    assert letters == await app.dead.select(all=True) == sorted(letters, key=lambda letter: letter.id)
    assert (len(letters), {letter.task for letter in letters}) == (600, {"charge"})
    answers = await app.dead.replay(task="charge")
    assert [answer.id for answer in answers] == [letter.id for letter in letters]
    with pytest.raises(InvalidArguments, match="is pending, not a dead letter"):
        await app.dead.select([letters[0].id])
    with pytest.raises(InvalidArguments, match="say which jobs"):
        await app.dead.select()


async def test_an_act_on_many_is_for_those_that_it_can_be_done_to(
    app: Drumbeat, charge: Charge, hand: ManualWorker
) -> None:
    await app.enqueue_many([charge.bind(number) for number in range(3)])  # type: ignore[call-arg]
    await hand.end(OutcomeKind.SUCCEEDED)
    await app.enqueue_many([charge.bind(number) for number in range(1_100)])  # type: ignore[call-arg]
    dry = await app.jobs.bulk("cancel", task="charge", dry_run=True)
    assert (dry.matched, dry.touched) == (1_100, 0)
    answer = await app.jobs.bulk("cancel", task="charge")
    assert (answer.matched, answer.touched, answer.refused) == (1_100, 1_100, ())
    assert answer.requested == 0
    await charge.enqueue(1)  # type: ignore[call-arg]
    await hand.claim()
    answer = await app.jobs.bulk("cancel", task="charge")
    assert (answer.touched, answer.requested) == (1, 1), "asked to stop, and not cancelled yet"
    assert (await app.jobs.bulk("run_now", all=True)).matched == 0


async def test_the_last_live_job_of_a_queue_that_no_worker_takes_can_be_cancelled(app: Drumbeat) -> None:
    store = await app._internals.store()
    for act in (lambda: app.jobs.bulk("cancel", queue="left"), lambda: app.jobs.cancel(queue="left")):
        await making.add(store, making.new_job(queue="left"))
        await act()
        assert await app.jobs.list(state="pending") == []


async def test_an_action_on_an_unknown_queue_is_refused(app: Drumbeat, charge: Charge) -> None:
    with pytest.raises(InvalidArguments, match="known are critical"):
        await app.jobs.bulk("cancel", queue="crtical")


async def test_a_paced_act_begins_at_once_and_keeps_its_rate(app: Drumbeat, charge: Charge, hand: ManualWorker) -> None:
    await app.enqueue_many([charge.bind(number) for number in range(10)])  # type: ignore[call-arg]
    await hand.end(OutcomeKind.DEAD)
    clock = FakeClock()
    choice = select_jobs("replay", None, all=True, query={})

    async def replayed() -> int:
        return len(await app.jobs.list(state="pending"))

    async with asyncio.TaskGroup() as group:
        act = group.create_task(apply_to_all(app._internals.client, choice, clock, 20.0))
        seen = []
        for _ in range(5):
            await until(lambda: clock.sleepers or act.done(), what="the act waits for its next step")
            seen.append(await replayed())
            await clock.advance(0.1)
    assert seen == [2, 4, 6, 8, 10]
    assert act.result().touched == 10


@pytest.mark.parametrize(
    ("action", "which", "words"),
    [
        ("explode", None, {"all": True}),
        ("cancel", None, {}),
        ("cancel", None, {"task": None}),
        ("cancel", [str(new_job_id())], {"task": "charge"}),
        ("cancel", ["nonsense"], {}),
        ("cancel", [str(new_job_id()) for _ in range(10_001)], {}),
        ("cancel", None, {"task": "charge", "limit": 5}),
        ("replay", None, {"all": True, "rate": 0}),
        ("replay", None, {"all": True, "rate": True}),
    ],
)
async def test_an_act_that_does_not_say_on_what_is_refused(
    app: Drumbeat, charge: Charge, action: str, which: Any, words: dict[str, Any]
) -> None:
    with pytest.raises(InvalidArguments):
        await app.jobs.bulk(action, which, **words)


def test_the_same_verbs_wait_in_code_without_a_loop(app_url: str) -> None:
    app = Drumbeat(app_url)

    @app.task
    def greet(name: str) -> None: ...

    job = app.sync.jobs.enqueue("greet", {"name": "ada"}, delay=60)
    assert app.sync.jobs.run_now(job.id) == 1
    assert app.sync.jobs.show(job.id).args == '{"name":"ada"}'
    assert app.sync.jobs.bulk("cancel", task="greet").touched == 1
    assert app.sync.tasks.history("greet").items == []
    assert app.sync.queues.show("default").ready == 0
    app.sync.close()
