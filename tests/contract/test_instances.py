"""Instances: registration, heartbeats, declared deaths, deregistration."""

import msgspec
import pytest

from drumbeat.core.follow_up import DeadLetterPayload
from drumbeat.core.instance import DeadInstanceReport, InstanceState, Peer, Role
from drumbeat.core.job import JobState, OutcomeKind
from drumbeat.ids import new_instance_id
from drumbeat.store.job_reads import get_job
from drumbeat.store.protocol import Store
from tests.contract.making import HOUR, add, claim, claimed_one, end, hold, ids, new_instance, new_job, worker


async def test_a_registered_instance_is_seen_as_it_was_given(store: Store) -> None:
    before = await store.inspect.now()
    given = new_instance(
        app="shop",
        version="2",
        host="box",
        pid=42,
        roles=(Role.WORKER, Role.CONTROLLER),
        queues=("a", "b"),
        tasks={"greet": "s1", "charge": "s2"},
        concurrency=7,
    )
    await store.instances.register(given)
    [found] = await store.inspect.list_instances()
    assert (found.id, found.state, found.app, found.version) == (given.id, InstanceState.ALIVE, "shop", "2")
    assert (found.host, found.pid, found.roles) == ("box", 42, (Role.WORKER, Role.CONTROLLER))
    assert (found.queues, found.tasks, found.concurrency) == (("a", "b"), given.tasks, 7)
    assert (found.running, found.refused, found.beat, found.ended_at, found.ended_reason) == (0, 0, 0, None, None)
    assert before <= found.started_at.timestamp() * 1_000_000 <= await store.inspect.now()


async def test_registering_again_is_harmless(store: Store) -> None:
    given = new_instance()
    await store.instances.register(given)
    await store.instances.heartbeat(given.id, 0)
    await store.instances.register(given)
    [found] = await store.inspect.list_instances()
    assert found.beat == 1


async def test_each_beat_counts_one_and_tells_the_running_jobs(store: Store) -> None:
    instance = await worker(store)
    await claimed_one(store, instance)
    pulses = [await store.instances.heartbeat(instance, running) for running in (5, 3)]
    assert [(pulse.alive, pulse.beat, pulse.running) for pulse in pulses] == [(True, 1, 1), (True, 2, 1)]
    assert pulses[0].now <= pulses[1].now <= await store.inspect.now()
    [found] = await store.inspect.list_instances()
    assert (found.beat, found.running) == (2, 3)
    assert found.beat_at.timestamp() * 1_000_000 == pytest.approx(pulses[1].now, abs=1)


async def test_a_beat_tells_the_hearts_of_all_other_living_instances(store: Store) -> None:
    one, two, gone, dead = [await worker(store) for _ in range(4)]
    await store.instances.heartbeat(two, 0)
    await store.instances.deregister(gone, "bye")
    await store.instances.declare_dead(dead, beat=None, started=None, reason="test")
    assert (await store.instances.heartbeat(one, 0)).peers == [Peer(two, 1)]


async def test_a_beat_tells_what_pending_jobs_wait_for_once_each(store: Store) -> None:
    instance = await worker(store)
    assert (await store.instances.heartbeat(instance, 0)).blocked_on == []
    for blocked_on in ("task:b", "task:a", "task:b"):
        job = await claimed_one(store, instance)
        await end(store, instance, job, OutcomeKind.BLOCKED, blocked_on=blocked_on, started_at=None)
    assert (await store.instances.heartbeat(instance, 0)).blocked_on == ["task:a", "task:b"]
    await claim(store, instance, wants=["task:a"])
    assert (await store.instances.heartbeat(instance, 0)).blocked_on == ["task:b"]


async def test_an_unknown_or_ended_instance_is_told_that_it_does_not_live(store: Store) -> None:
    gone, dead = await worker(store), await worker(store)
    await store.instances.deregister(gone, "bye")
    await store.instances.declare_dead(dead, beat=None, started=None, reason="test")
    for instance in (gone, dead, new_instance_id()):
        pulse = await store.instances.heartbeat(instance, 1)
        assert (pulse.alive, pulse.cancel_requests, pulse.peers) == (False, [], [])


async def test_a_dead_instance_is_never_revived(store: Store) -> None:
    given = new_instance()
    await store.instances.register(given)
    await store.instances.declare_dead(given.id, beat=None, started=None, reason="test")
    await store.instances.register(given)
    assert not (await store.instances.heartbeat(given.id, 0)).alive


async def test_all_jobs_of_a_dead_instance_are_suspects_when_it_is_unknown_what_had_started(store: Store) -> None:
    dead, other = await worker(store), await worker(store)
    first, second = await claimed_one(store, dead), await claimed_one(store, dead)
    foreign = await claimed_one(store, other)
    found = await store.instances.declare_dead(dead, beat=0, started=None, reason="killed")
    assert found == DeadInstanceReport(declared=True, crash_suspect=2)
    for job in (first, second):
        freed = await get_job(store, job.id)
        assert (freed.state, freed.crashes, freed.failures, freed.instance) == (JobState.PENDING, 1, 0, None)
        [attempt] = (await store.inspect.get_attempts([job.id]))[job.id]
        assert (attempt.outcome, attempt.instance, attempt.token) == (OutcomeKind.CRASHED, dead, job.token)
        assert attempt.error is not None and attempt.error.message == "killed"
    assert sorted(ids(await claim(store, other))) == sorted([first.id, second.id])
    assert (await get_job(store, foreign.id)).instance == other
    record = next(each for each in await store.inspect.list_instances(all=True) if each.id == dead)
    assert (record.state, record.ended_reason) == (InstanceState.DEAD, "killed; its jobs: 2 to run again alone")
    assert record.ended_at is not None


async def test_what_was_not_running_is_released_uncharged_and_recorded(store: Store) -> None:
    dead = await worker(store)
    started, buffered = await claimed_one(store, dead), await claimed_one(store, dead)
    marks = [hold(started), msgspec.structs.replace(hold(buffered), token=buffered.token - 1)]
    assert await store.instances.declare_dead(dead, beat=None, started=marks, reason="killed") == DeadInstanceReport(
        declared=True, crash_suspect=1, released=1
    )
    found = await get_job(store, buffered.id)
    assert (found.state, found.crashes, found.failures) == (JobState.PENDING, 0, 0)
    # It may have run: its worker can die after the handler's end and before the report.
    (attempt,) = (await store.inspect.get_attempts([buffered.id]))[buffered.id]
    assert (attempt.token, attempt.outcome) == (buffered.token, OutcomeKind.RELEASED)
    assert (await get_job(store, started.id)).crashes == 1
    record = next(each for each in await store.inspect.list_instances(all=True) if each.id == dead)
    assert record.ended_reason == "killed; its jobs: 1 to run again alone, 1 released"


async def test_crashes_of_many_at_once_are_nobodys_own(store: Store) -> None:
    instance = await worker(store)
    await add(store, new_job(), new_job())
    for _ in range(5):
        assert len(await claim(store, instance)) == 2
        await store.instances.declare_dead(instance, beat=None, started=None, reason="killed")
        instance = await worker(store)
    jobs = await claim(store, instance)
    assert {job.crashes for job in jobs} == {1}


async def test_a_suspect_that_dies_alone_is_charged_until_it_is_dead_with_its_follow_up(store: Store) -> None:
    instance = await worker(store)
    job = await claimed_one(store, instance, on_dead="mourn", crash_limit=3)
    for crashes in (1, 2):
        assert (
            await store.instances.declare_dead(instance, beat=None, started=None, reason="killed")
        ).crash_suspect == 1
        instance = await worker(store)
        [job] = await claim(store, instance)
        assert job.crashes == crashes
    assert await store.instances.declare_dead(instance, beat=None, started=None, reason="killed") == DeadInstanceReport(
        declared=True, dead=1
    )
    found = await get_job(store, job.id)
    assert (found.state, found.crashes, found.failures) == (JobState.DEAD, 3, 0)
    assert found.error is not None and found.error.message == "killed"
    assert [attempt.outcome for attempt in (await store.inspect.get_attempts([job.id]))[job.id]] == ["crashed"] * 3
    [mourning] = await claim(store, await worker(store))
    assert mourning.task == "mourn"
    assert msgspec.json.decode(mourning.args, type=DeadLetterPayload).job.id == job.id


async def test_a_crash_limit_of_one_is_dead_at_the_first_crash(store: Store) -> None:
    instance = await worker(store)
    job = await claimed_one(store, instance, crash_limit=1)
    assert (await store.instances.declare_dead(instance, beat=None, started=[hold(job)], reason="killed")).dead == 1
    assert (await get_job(store, job.id)).state == JobState.DEAD


async def test_a_job_whose_cancellation_was_requested_is_cancelled_with_the_death_of_its_instance(store: Store) -> None:
    instance = await worker(store)
    started, buffered = await claimed_one(store, instance, crash_limit=1), await claimed_one(store, instance)
    await store.jobs.cancel([started.id, buffered.id])
    found = await store.instances.declare_dead(instance, beat=None, started=[hold(started)], reason="killed")
    assert found == DeadInstanceReport(declared=True, cancelled=2)
    assert [(await get_job(store, job.id)).state for job in (started, buffered)] == [JobState.CANCELLED] * 2
    assert [attempt.outcome for attempt in (await store.inspect.get_attempts([started.id]))[started.id]] == ["crashed"]
    (attempt,) = (await store.inspect.get_attempts([buffered.id]))[buffered.id]
    assert attempt.outcome == "cancelled"


async def test_an_instance_that_sent_a_heartbeat_is_not_declared_dead(store: Store) -> None:
    instance = await worker(store)
    job = await claimed_one(store, instance)
    seen = (await store.instances.heartbeat(instance, 1)).beat
    await store.instances.heartbeat(instance, 1)
    assert await store.instances.declare_dead(
        instance, beat=seen, started=None, reason="too late"
    ) == DeadInstanceReport(declared=False)
    assert await store.jobs.list_running(instance) == [hold(job)]
    assert (await store.instances.declare_dead(instance, beat=seen + 1, started=None, reason="now")).declared


async def test_declaring_dead_twice_changes_nothing(store: Store) -> None:
    instance, other = await worker(store), await worker(store)
    await claimed_one(store, instance)
    await store.instances.declare_dead(instance, beat=None, started=None, reason="first")
    [job] = await claim(store, other)
    assert await store.instances.declare_dead(instance, beat=None, started=None, reason="second") == DeadInstanceReport(
        declared=False
    )
    assert (
        await store.instances.declare_dead(new_instance_id(), beat=None, started=None, reason="nobody")
    ).declared is False
    assert await store.jobs.list_running(other) == [hold(job)]
    record = next(each for each in await store.inspect.list_instances(all=True) if each.id == instance)
    assert record.ended_reason == "first; its jobs: 1 to run again alone"


async def test_who_leaves_gives_back_its_jobs_unharmed(store: Store) -> None:
    instance = await worker(store)
    job, unwanted = await claimed_one(store, instance), await claimed_one(store, instance)
    await store.jobs.cancel([unwanted.id])
    await store.instances.deregister(instance, "deploy")
    await store.instances.deregister(instance, "again")
    found = await get_job(store, job.id)
    assert (found.state, found.crashes, found.failures) == (JobState.PENDING, 0, 0)
    [attempt] = (await store.inspect.get_attempts([job.id]))[job.id]
    assert (attempt.outcome, attempt.token, attempt.started_at is not None) == (OutcomeKind.RELEASED, job.token, True)
    assert (await get_job(store, unwanted.id)).state == JobState.CANCELLED
    assert await store.inspect.list_instances() == []
    [record] = await store.inspect.list_instances(all=True)
    assert (record.state, record.ended_reason, record.running) == (InstanceState.LEFT, "deploy", 0)


async def test_instances_that_ended_before_a_moment_are_forgotten(store: Store) -> None:
    gone, dead, living = [await worker(store) for _ in range(3)]
    await store.instances.deregister(gone, "bye")
    await store.instances.declare_dead(dead, beat=None, started=None, reason="killed")
    now = await store.inspect.now()
    assert await store.instances.prune(now - HOUR) == 0
    assert await store.instances.prune(now + HOUR) == 2
    assert [each.id for each in await store.inspect.list_instances(all=True)] == [living]
