"""Signals: delivered once, to a wait that has begun before or begins later."""

import asyncio
from typing import Any

import pytest

from drumbeat.core.claim import ClaimedJob, ClaimRef
from drumbeat.core.job import JobState, OutcomeKind
from drumbeat.core.signals import MAX_UNREAD_SIGNALS, NewSignal, SignalAnswer, SignalWait, TakenSignal
from drumbeat.core.step import StepKind, StepRecord
from drumbeat.core.suspension import FOREVER_US, Suspension
from drumbeat.durations import to_us
from drumbeat.ids import InstanceId, JobId, new_job_id
from drumbeat.store.job_reads import get_job
from drumbeat.store.protocol import Store
from drumbeat.store.protocol.wake import Subscriber
from tests.conftest import OpenAgain
from tests.contract.making import HOUR, add, claim, claimed_one, end, new_job, worker
from tests.waiting import until

SENT = SignalAnswer.SENT


def signal(job: JobId, name: str = "approved", payload: str = "true", id: str | None = None) -> NewSignal:
    return NewSignal(id=id or new_job_id(), job=job, name=name, payload=payload)


def wait(job: ClaimedJob, name: str = "approved", signal: str = "approved") -> SignalWait:
    return SignalWait(claim=ClaimRef(job.id, job.token), name=name, signal=signal)


async def suspend(store: Store, instance: InstanceId, job: ClaimedJob, delay: int | None = HOUR) -> None:
    """As a run ends that has begun to wait."""
    moment = FOREVER_US if delay is None else None
    suspension = Suspension(kind=StepKind.WAIT, name="approved", signal="approved", until=moment)
    await end(store, instance, job, OutcomeKind.SUSPENDED, delay=delay or 0, suspension=suspension)


async def steps(store: Store, id: JobId) -> list[StepRecord]:
    return (await store.steps.load([id]))[id]


@pytest.mark.parametrize("delay", [HOUR, None])
async def test_a_waiting_job_is_due_at_its_time_out(store: Store, delay: int | None) -> None:
    instance = await worker(store)
    job = await claimed_one(store, instance)
    await suspend(store, instance, job, delay)
    found = await get_job(store, job.id)
    assert (found.state, found.suspended) == (JobState.PENDING, "signal:approved")
    [step] = await steps(store, job.id)
    assert (step.kind, step.name, step.signal, step.finished_at) == (StepKind.WAIT, "approved", "approved", None)
    if delay is None:
        assert (step.until, to_us(found.run_at)) == (None, FOREVER_US)
    else:
        assert step.until == found.run_at


async def test_a_signal_wakes_the_job_that_waits_for_it(store: Store) -> None:
    hints: list[int] = []
    async with store.wake.listen(Subscriber(on_job=hints.append)) as address:
        instance = await worker(store, **({} if address is None else {"wake": address}))
        job = await claimed_one(store, instance)
        await suspend(store, instance, job)
        hints.clear()
        assert await store.steps.send_signal(signal(job.id, payload='{"by":"ann"}')) is SENT
        await until(lambda: hints, what="a hint")
    [again] = await claim(store, instance)
    assert again.id == job.id and again.has_run
    assert await store.steps.take_signal(instance, wait(again)) == TakenSignal(is_over=True, payload='{"by":"ann"}')
    [step] = await steps(store, job.id)
    assert (step.token, step.result, step.signal) == (job.token, '{"by":"ann"}', "approved")
    assert step.finished_at is not None and step.until is not None
    [sent] = (await store.steps.list_signals([job.id]))[job.id]
    assert (sent.job, sent.name, sent.payload, sent.read_by) == (job.id, "approved", '{"by":"ann"}', "approved")


async def test_another_signal_does_not_wake_it(store: Store) -> None:
    instance = await worker(store)
    job = await claimed_one(store, instance)
    await suspend(store, instance, job)
    assert await store.steps.send_signal(signal(job.id, "paid")) is SENT
    assert await claim(store, instance) == []


async def test_a_signal_before_the_wait_is_not_lost(store: Store) -> None:
    instance = await worker(store)
    [id] = await add(store, new_job())
    await store.steps.send_signal(signal(id, payload="1"))
    [job] = await claim(store, instance)
    assert await store.steps.take_signal(instance, wait(job)) == TakenSignal(is_over=True, payload="1")
    [step] = await steps(store, id)
    assert (step.kind, step.result, step.until) == (StepKind.WAIT, "1", None)


async def test_a_signal_between_the_look_and_the_suspension_makes_the_job_due_at_once(store: Store) -> None:
    instance = await worker(store)
    job = await claimed_one(store, instance)
    assert await store.steps.take_signal(instance, wait(job)) == TakenSignal()
    await store.steps.send_signal(signal(job.id, payload="1"))
    await suspend(store, instance, job)
    [step] = await steps(store, job.id)
    assert step.until is not None and to_us(step.until) > await store.inspect.now()
    [again] = await claim(store, instance)
    assert (await store.steps.take_signal(instance, wait(again))).payload == "1"


async def test_signals_against_suspensions_never_leave_a_job_asleep(store: Store, open_again: OpenAgain) -> None:
    second = await open_again()
    instance = await worker(store)
    for _ in range(30):
        job = await claimed_one(store, instance)
        async with asyncio.TaskGroup() as group:
            group.create_task(suspend(store, instance, job))
            group.create_task(second.steps.send_signal(signal(job.id)))
        [again] = await claim(store, instance)
        assert (await store.steps.take_signal(instance, wait(again))).payload == "true"
        await end(store, instance, again, OutcomeKind.SUCCEEDED)


async def test_each_signal_is_read_by_one_wait_the_oldest_first(store: Store) -> None:
    instance = await worker(store)
    job = await claimed_one(store, instance)
    for number in range(3):
        await store.steps.send_signal(signal(job.id, payload=str(number)))
    taken = [await store.steps.take_signal(instance, wait(job, f"w{number}")) for number in range(4)]
    assert [each.payload for each in taken] == ["0", "1", "2", None]
    assert [each.is_over for each in taken] == [True, True, True, False]
    assert (await store.steps.take_signal(instance, wait(job, "w1"))).payload == "1"
    read = [each.read_by for each in (await store.steps.list_signals([job.id]))[job.id]]
    assert read == ["w0", "w1", "w2"]


async def test_a_repeated_call_is_one_signal(store: Store) -> None:
    instance = await worker(store)
    job = await claimed_one(store, instance)
    for payload in ("1", "2"):
        assert await store.steps.send_signal(signal(job.id, payload=payload, id="s1")) is SENT
    assert (await store.steps.take_signal(instance, wait(job, "a"))).payload == "1"
    assert await store.steps.send_signal(signal(job.id, payload="3", id="s1")) is SENT
    assert await store.steps.take_signal(instance, wait(job, "b")) == TakenSignal()


async def test_a_time_out_is_on_record_and_a_later_signal_changes_nothing(store: Store) -> None:
    instance = await worker(store)
    job = await claimed_one(store, instance)
    await suspend(store, instance, job, 1)
    [again] = await claim(store, instance)
    timed_out = TakenSignal(is_over=True, payload=None)
    assert await store.steps.take_signal(instance, wait(again)) == timed_out
    await store.steps.send_signal(signal(job.id))
    assert await store.steps.take_signal(instance, wait(again)) == timed_out
    [step] = await steps(store, job.id)
    assert step.finished_at is not None and step.result is None


async def test_a_wait_of_a_claim_that_is_over_gets_nothing(store: Store) -> None:
    instance = await worker(store)
    job = await claimed_one(store, instance)
    await store.steps.send_signal(signal(job.id))
    await end(store, instance, job, OutcomeKind.RELEASED)
    [again] = await claim(store, instance)
    assert await store.steps.take_signal(instance, wait(job)) == TakenSignal(is_current=False)
    assert await steps(store, job.id) == []
    assert (await store.steps.take_signal(instance, wait(again))).payload == "true"


@pytest.mark.parametrize("kind", [OutcomeKind.SUCCEEDED, OutcomeKind.DEAD, OutcomeKind.CANCELLED])
async def test_a_call_that_is_repeated_after_the_job_has_ended_was_sent(store: Store, kind: OutcomeKind) -> None:
    """The answer to the first was lost: it must not look as if nothing had been stored."""
    instance = await worker(store)
    job = await claimed_one(store, instance)
    assert await store.steps.send_signal(signal(job.id, id="s1")) is SENT
    assert (await store.steps.take_signal(instance, wait(job))).is_over
    await end(store, instance, job, kind)
    assert await store.steps.send_signal(signal(job.id, id="s1")) is SENT
    assert await store.steps.send_signal(signal(job.id, id="s2")) == kind.value


async def test_a_call_that_is_repeated_wakes_nobody(store: Store) -> None:
    """What the job waits for now is another signal of this name."""
    instance = await worker(store)
    job = await claimed_one(store, instance)
    await store.steps.send_signal(signal(job.id, id="s1"))
    assert (await store.steps.take_signal(instance, wait(job, "first"))).is_over
    await suspend(store, instance, job)
    assert await store.steps.send_signal(signal(job.id, id="s1")) is SENT
    assert await claim(store, instance) == []


async def test_two_waits_at_once_get_two_signals(store: Store, open_again: OpenAgain) -> None:
    """As when the answer to a call is late, and the call is repeated on another connection."""
    second = await open_again()
    instance = await worker(store)
    for number in range(30):
        job = await claimed_one(store, instance)
        for payload in ("0", "1"):
            await store.steps.send_signal(signal(job.id, payload=payload, id=f"s{payload}"))
        async with asyncio.TaskGroup() as group:
            calls = [
                group.create_task(each.steps.take_signal(instance, wait(job, f"w{at}")))
                for at, each in enumerate((store, second))
            ]
        payloads = sorted(call.result().payload or "" for call in calls if call.result().is_over)
        assert payloads in (["0"], ["0", "1"]), number
        await end(store, instance, job, OutcomeKind.SUCCEEDED)


@pytest.mark.parametrize("kind", [OutcomeKind.SUCCEEDED, OutcomeKind.DEAD, OutcomeKind.CANCELLED])
async def test_a_job_that_has_ended_takes_no_signal(store: Store, kind: OutcomeKind) -> None:
    instance = await worker(store)
    job = await claimed_one(store, instance)
    await end(store, instance, job, kind)
    assert await store.steps.send_signal(signal(job.id)) == kind.value
    assert (await store.steps.list_signals([job.id]))[job.id] == []


async def test_a_job_that_nobody_knows_takes_no_signal(store: Store) -> None:
    for id in (new_job_id(), JobId("nonsense")):
        assert await store.steps.send_signal(signal(id)) is SignalAnswer.UNKNOWN
        assert await store.steps.list_signals([id]) == {id: []}


async def test_a_job_keeps_so_many_unread_signals_and_no_more(store: Store) -> None:
    instance = await worker(store)
    job = await claimed_one(store, instance)
    for number in range(MAX_UNREAD_SIGNALS):
        assert await store.steps.send_signal(signal(job.id, id=f"s{number}")) is SENT
    assert await store.steps.send_signal(signal(job.id)) is SignalAnswer.TOO_MANY
    assert await store.steps.send_signal(signal(job.id, id="s0")) is SENT
    await store.steps.take_signal(instance, wait(job))
    assert await store.steps.send_signal(signal(job.id)) is SENT


async def test_run_now_does_not_end_a_wait_for_a_signal(store: Store) -> None:
    instance = await worker(store)
    job = await claimed_one(store, instance)
    await suspend(store, instance, job)
    assert await store.jobs.run_now([job.id]) == 0
    assert await claim(store, instance) == []


async def test_payloads_and_names_are_kept_exactly(store: Store) -> None:
    instance = await worker(store)
    job = await claimed_one(store, instance)
    odd: dict[str, Any] = {"name": 'ok "ä" / \\ 😀', "payload": '{"text":"ä / \\" \\\\ \\n 😀","n":12345678901234567}'}
    await store.steps.send_signal(signal(job.id, **odd))
    taken = await store.steps.take_signal(instance, wait(job, "w", odd["name"]))
    assert taken.payload == odd["payload"]
    [step] = await steps(store, job.id)
    assert (step.signal, step.result) == (odd["name"], odd["payload"])


async def test_signals_are_pruned_with_history(store: Store) -> None:
    instance = await worker(store)
    job = await claimed_one(store, instance)
    await store.steps.send_signal(signal(job.id))
    await end(store, instance, job, OutcomeKind.SUCCEEDED)
    assert len((await store.steps.list_signals([job.id]))[job.id]) == 1
    await store.jobs.prune(await store.inspect.now() + 1, 100)
    assert (await store.steps.list_signals([job.id]))[job.id] == []


async def test_live_jobs_are_found_by_task_and_key(store: Store) -> None:
    instance = await worker(store)
    [gone] = await add(store, new_job(key="k"))
    [job] = await claim(store, instance)
    await end(store, instance, job, OutcomeKind.SUCCEEDED)
    ids = await add(store, new_job(key="k"), new_job(key="k"), new_job(key="other"), new_job("other", key="k"))
    await claim(store, instance, limit=1)
    assert set(await store.steps.find_live("greet", "k")) == set(ids[:2])
    assert (await store.steps.find_live("greet", "none"), gone) == ([], job.id)
