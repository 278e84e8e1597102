"""Roll-ups: written by each instance for itself, merged when they are read, pruned without losing a total."""

from collections import Counter
from typing import Any

from drumbeat.core.job import OutcomeKind
from drumbeat.core.stats import BUCKETS, OVERALL, Resolution, Rollup
from drumbeat.ids import InstanceId
from drumbeat.store.lost_counts import recover_counts
from drumbeat.store.protocol import Store
from drumbeat.worker.stats_recorder import SUCCEEDED, StatsRecorder
from tests.conftest import OpenAgain
from tests.contract.making import HOUR, add, claim, claimed_one, end, new_job, outcome, worker

SECOND, MINUTE = 1_000_000, 60_000_000
LIMIT = 1_000


def rollup(resolution: Resolution, at: int = 0, queue: str = "default", task: str = "greet", **counts: Any) -> Rollup:
    return Rollup(resolution=resolution, at=at, queue=queue, task=task, **counts)


def histogram(**buckets: int) -> tuple[int, ...]:
    """b0=3 stands for three in the first bucket."""
    return tuple(buckets.get(f"b{number}", 0) for number in range(BUCKETS))


async def stretch(store: Store, resolution: Resolution = Resolution.TEN_SECONDS) -> int:
    """One that has just begun."""
    return await store.inspect.now() // resolution * resolution


async def prune(
    store: Store, *, tens: int = 0, minutes: int = 0, hours: int = 0, gone: int = 0, limit: int = LIMIT
) -> int:
    before = {Resolution.TEN_SECONDS: tens, Resolution.MINUTE: minutes, Resolution.HOUR: hours}
    return await store.stats.prune(before, idle_since=gone, limit=limit)


async def leave(store: Store, instance: InstanceId) -> None:
    await store.instances.deregister(instance, "done")


async def test_a_rollup_comes_back_as_it_was_written(store: Store) -> None:
    at = await stretch(store)
    written = rollup(
        Resolution.TEN_SECONDS,
        at,
        "mail-2",
        "shop.greet:x",
        started=21,
        succeeded=12,
        failed=5,
        dead=2,
        cancelled=3,
        crashed=1,
        wait=histogram(b0=20, b27=1),
        wait_us=2**60,
        run=histogram(b3=20, b26=1),
        run_us=2**53 + 1,
    )
    assert await store.stats.put(await worker(store), [written])
    assert await store.stats.read(Resolution.TEN_SECONDS, at, at + 1) == [written]


async def test_what_several_instances_counted_is_added_up(store: Store, open_again: OpenAgain) -> None:
    at = await stretch(store)
    one = rollup(
        Resolution.TEN_SECONDS, at, started=3, wait=histogram(b0=1, b5=2), wait_us=70, run=histogram(b1=3), run_us=5
    )
    two = rollup(
        Resolution.TEN_SECONDS, at, started=1, dead=1, wait=histogram(b5=1), wait_us=40, run=histogram(b2=1), run_us=6
    )
    await store.stats.put(await worker(store), [one])
    other = await open_again()
    await other.stats.put(await worker(other), [two])
    assert await store.stats.read(Resolution.TEN_SECONDS, at, at + 1) == [
        rollup(
            Resolution.TEN_SECONDS,
            at,
            started=4,
            dead=1,
            wait=histogram(b0=1, b5=3),
            wait_us=110,
            run=histogram(b1=3, b2=1),
            run_us=11,
        )
    ]


async def test_writing_again_replaces_what_was_there(store: Store) -> None:
    at, instance = await stretch(store), await worker(store)
    for count in (1, 1, 4):
        rows = [rollup(Resolution.TEN_SECONDS, at, succeeded=count), rollup(Resolution.TOTAL, succeeded=count)]
        assert await store.stats.put(instance, rows)
    assert [each.succeeded for each in await store.stats.read(Resolution.TEN_SECONDS, at, at + 1)] == [4]
    assert [each.succeeded for each in await store.stats.read(Resolution.TOTAL, 0, 1)] == [4]


async def test_an_instance_that_does_not_live_writes_nothing(store: Store) -> None:
    at, left = await stretch(store), await worker(store)
    await leave(store, left)
    for instance in (left, InstanceId("f" * 16)):
        assert not await store.stats.put(
            instance, [rollup(Resolution.TEN_SECONDS, at), rollup(Resolution.TOTAL, started=1)]
        )
    assert await store.stats.read(Resolution.TEN_SECONDS, at, at + 1) == []
    assert await store.stats.read(Resolution.TOTAL, 0, 1) == []


async def test_stretches_are_read_by_span_queue_and_task_in_order(store: Store) -> None:
    at, instance = await stretch(store), await worker(store)
    rows = [
        rollup(Resolution.TEN_SECONDS, at - number * 10 * SECOND, queue, task, started=number)
        for number in range(4)
        for queue in ("b", "a")
        for task in ("y", "x")
    ]
    await store.stats.put(instance, [*rows, rollup(Resolution.MINUTE, at // MINUTE * MINUTE, "a", "x", started=9)])

    async def places(**wanted: Any) -> list[tuple[int, str, str]]:
        found = await store.stats.read(Resolution.TEN_SECONDS, at - 20 * SECOND, at, **wanted)
        return [(each.started, each.queue, each.task) for each in found]

    ordered = [(number, queue, task) for number in (2, 1) for queue in "ab" for task in "xy"]
    assert await places() == ordered
    assert await places(queue="a") == [place for place in ordered if place[1] == "a"]
    assert await places(task="y") == [place for place in ordered if place[2] == "y"]
    assert await places(queue="b", task="y") == [(2, "b", "y"), (1, "b", "y")]
    assert await places(queue="c") == []
    assert [each.started for each in await store.stats.read(Resolution.MINUTE, at - MINUTE, at + 1)] == [9]


async def test_what_is_counted_of_all_together_is_read_apart(store: Store) -> None:
    at = await stretch(store)
    for number in (1, 2):
        rows = [rollup(Resolution.TEN_SECONDS, at, task=task, started=number) for task in ("x", "y")]
        whole = [
            rollup(Resolution.TEN_SECONDS, at - ago * SECOND, OVERALL, OVERALL, started=2 * number) for ago in (0, 10)
        ]
        await store.stats.put(await worker(store), [*rows, *whole])
    assert [each.started for each in await store.stats.read(Resolution.TEN_SECONDS, 0, at + 1)] == [3, 3]
    both = await store.stats.read(Resolution.TEN_SECONDS, 0, at + 1, queue=OVERALL, task=OVERALL)
    assert [(each.at, each.queue, each.task, each.started) for each in both] == [
        (at - 10 * SECOND, OVERALL, OVERALL, 6),
        (at, OVERALL, OVERALL, 6),
    ]
    assert await store.stats.read(Resolution.TEN_SECONDS, at, at + 1, queue=OVERALL, task=OVERALL) == both[1:]
    assert await store.stats.read(Resolution.MINUTE, 0, at + 1, queue=OVERALL, task=OVERALL) == []
    assert await prune(store, tens=at) == 2
    assert await store.stats.read(Resolution.TEN_SECONDS, 0, at + 1, queue=OVERALL, task=OVERALL) == both[1:]
    assert await prune(store, tens=at + 1) == 6
    assert await store.stats.read(Resolution.TEN_SECONDS, 0, at + 1, queue=OVERALL, task=OVERALL) == []


async def test_more_stretches_are_read_than_fit_into_one_page(store: Store) -> None:
    at, instance = await stretch(store), await worker(store)
    rows = [rollup(Resolution.TEN_SECONDS, at - number * 10 * SECOND, started=number + 1) for number in range(500)]
    await store.stats.put(instance, rows)
    found = await store.stats.read(Resolution.TEN_SECONDS, 0, at + 1)
    assert [each.started for each in found] == list(range(500, 0, -1))


async def test_old_stretches_are_pruned_and_the_totals_stay(store: Store) -> None:
    at, instance = await stretch(store, Resolution.MINUTE), await worker(store)
    old = at - 3 * HOUR
    kept = [rollup(resolution, at, started=1) for resolution in (Resolution.TEN_SECONDS, Resolution.MINUTE)]
    kept.append(rollup(Resolution.HOUR, at - at % HOUR, started=1))
    gone = [rollup(Resolution.TEN_SECONDS, old, task=task, started=1) for task in ("a", "b", "c")]
    gone += [rollup(Resolution.MINUTE, old, started=1), rollup(Resolution.HOUR, old - old % HOUR, started=1)]
    await store.stats.put(instance, [*kept, *gone, rollup(Resolution.TOTAL, started=6)])
    assert await prune(store, tens=old, minutes=old) == 0
    assert await prune(store, tens=at, minutes=old, limit=2) == 2
    assert await prune(store, tens=at, minutes=old) == 1
    assert len(await store.stats.read(Resolution.MINUTE, 0, at + 1)) == 2
    assert await prune(store, tens=at, minutes=at) == 1
    assert await prune(store, hours=at - at % HOUR) == 1
    assert [await store.stats.read(each.resolution, 0, at + 1) for each in kept] == [[each] for each in kept]
    assert [each.started for each in await store.stats.read(Resolution.TOTAL, 0, 1)] == [6]


async def test_totals_survive_the_instances_that_counted_them(store: Store) -> None:
    one, two, lives = [await worker(store) for _ in range(3)]
    large = 2**53 + 1
    await store.stats.put(one, [rollup(Resolution.TOTAL, started=1, run=histogram(b0=1), run_us=large)])
    await store.stats.put(two, [rollup(Resolution.TOTAL, started=2, run=histogram(b27=2), run_us=large)])
    await store.stats.put(two, [rollup(Resolution.TOTAL, queue="other", task="x", dead=4)])
    await store.stats.put(lives, [rollup(Resolution.TOTAL, started=8)])
    before = await store.stats.read(Resolution.TOTAL, 0, 1)
    assert [(each.queue, each.started, each.run_us, each.dead) for each in before] == [
        ("default", 11, 2 * large, 0),
        ("other", 0, 0, 4),
    ]
    later = await store.inspect.now() + HOUR
    assert await prune(store, gone=later) == 0
    for instance in (one, two):
        await leave(store, instance)
    assert await prune(store, gone=later - 2 * HOUR) == 0
    assert await prune(store, gone=later, limit=2) == 2
    assert await store.stats.read(Resolution.TOTAL, 0, 1) == before
    assert await prune(store, gone=later) == 1
    assert await prune(store, gone=later) == 0
    assert await store.stats.read(Resolution.TOTAL, 0, 1) == before
    three = await worker(store)
    await store.stats.put(three, [rollup(Resolution.TOTAL, started=16)])
    await store.stats.put(lives, [rollup(Resolution.TOTAL, started=9)])
    await leave(store, three)
    assert await prune(store, gone=later) == 1
    assert [each.started for each in await store.stats.read(Resolution.TOTAL, 0, 1)] == [28, 0]


async def test_writing_nothing_does_nothing(store: Store) -> None:
    assert await store.stats.put(await worker(store), [])
    assert await store.stats.read(Resolution.TOTAL, 0, 1) == []


async def ended_runs(store: Store, me: InstanceId) -> dict[str, int]:
    """One run of every fate, all of them ended, and by whom else is nobody's business."""
    kinds = {
        OutcomeKind.SUCCEEDED: 3,
        OutcomeKind.RETRY: 2,
        OutcomeKind.DEAD: 1,
        OutcomeKind.CANCELLED: 1,
        OutcomeKind.SNOOZED: 1,
    }
    wanted = [kind for kind, count in kinds.items() for _ in range(count)]
    await add(store, *(new_job(queue="mail", key=str(number)) for number in range(len(wanted))))
    jobs = await claim(store, me, "mail")
    now = await store.inspect.now()
    outcomes = [
        outcome(job, kind, started_at=now, finished_at=now + 5_000) for job, kind in zip(jobs, wanted, strict=True)
    ]
    await store.jobs.report_and_claim(me, outcomes, None)
    return {kind.value: count for kind, count in kinds.items()}


async def test_the_ends_of_an_instances_runs_are_on_record(store: Store) -> None:
    me, other = await worker(store), await worker(store)
    before = await store.inspect.now()
    await end(store, other, await claimed_one(store, other), OutcomeKind.SUCCEEDED)
    expected = await ended_runs(store, me)
    ends = await store.stats.read_run_ends(me, before)
    assert Counter(end.outcome for end in ends) == expected
    assert {(end.queue, end.task) for end in ends} == {("mail", "greet")}
    assert all(end.started_at is not None and end.finished_at == end.started_at + 5_000 for end in ends)
    assert [end.outcome for end in ends if end.dead] == ["dead"]
    assert not await store.stats.read_run_ends(me, before + HOUR)


async def test_what_one_instance_wrote_can_be_read(store: Store) -> None:
    me, other = await worker(store), await worker(store)
    at = await stretch(store, Resolution.MINUTE)
    assert await store.stats.read_written(me, at) == (None, [])
    mine = [
        rollup(Resolution.TOTAL, succeeded=5),
        rollup(Resolution.TEN_SECONDS, at, succeeded=2),
        rollup(Resolution.TEN_SECONDS, at, OVERALL, OVERALL, succeeded=2),
        rollup(Resolution.MINUTE, at, succeeded=5),
        rollup(Resolution.HOUR, at - at % HOUR, succeeded=9),
    ]
    old = rollup(Resolution.TEN_SECONDS, at - MINUTE, succeeded=3)
    before = await store.inspect.now()
    assert await store.stats.put(me, [*mine, old])
    assert await store.stats.put(
        other, [rollup(Resolution.TOTAL, succeeded=1), rollup(Resolution.MINUTE, at, succeeded=1)]
    )
    written = await store.stats.read_written(me, at)
    assert written.written_at is not None and before <= written.written_at <= await store.inspect.now()
    assert sorted(written.rollups, key=repr) == sorted(mine, key=repr)


async def test_what_an_instance_declared_dead_had_not_written_is_counted_from_the_record_and_only_once(
    store: Store,
) -> None:
    me, healthy = await worker(store), await worker(store)
    before = await stretch(store, Resolution.MINUTE)
    expected = await ended_runs(store, me)
    assert not await store.stats.put(me, [rollup(Resolution.TOTAL)], instance_died=True), "it is alive"
    await store.instances.declare_dead(me, beat=None, started=[], reason="killed")
    for _ in range(2):
        await recover_counts(store, me)
        for found in (
            await store.stats.read(Resolution.TOTAL, 0, 1),
            await store.stats.read(Resolution.TEN_SECONDS, before, before + HOUR),
            await store.stats.read(Resolution.TEN_SECONDS, before, before + HOUR, queue=OVERALL, task=OVERALL),
            await store.stats.read(Resolution.MINUTE, before, before + HOUR),
            await store.stats.read(Resolution.MINUTE, before, before + HOUR, queue=OVERALL, task=OVERALL),
            await store.stats.read(Resolution.HOUR, before - HOUR, before + HOUR),
            await store.stats.read(Resolution.HOUR, before - HOUR, before + HOUR, queue=OVERALL, task=OVERALL),
        ):
            assert sum(each.succeeded for each in found) == expected["succeeded"]
            assert sum(each.failed for each in found) == expected["retry"] + expected["dead"]
            assert sum(each.dead for each in found) == expected["dead"]
            assert sum(each.cancelled for each in found) == expected["cancelled"]
            assert sum(each.started for each in found) == sum(expected.values())
            assert (
                sum(sum(each.run) for each in found) == sum(sum(each.wait) for each in found) == sum(expected.values())
            )
            assert sum(each.run_us for each in found) == 5_000 * sum(expected.values())
    assert not await store.stats.put(healthy, [rollup(Resolution.TOTAL)], instance_died=True)


async def test_what_was_written_before_the_death_is_not_counted_again(store: Store) -> None:
    me = await worker(store)
    now = await store.inspect.now()
    recorder = StatsRecorder(lambda: now)
    first = await claimed_one(store, me)
    done = outcome(first, OutcomeKind.SUCCEEDED, started_at=now, finished_at=now)
    await store.jobs.report_and_claim(me, [done], None)
    recorder.begin()
    recorder.count(first, done, SUCCEEDED)
    recorder.flush_cells()
    assert await store.stats.put(me, recorder.unwritten())
    await end(store, me, await claimed_one(store, me), OutcomeKind.SUCCEEDED)
    await store.instances.declare_dead(me, beat=None, started=[], reason="killed")
    await recover_counts(store, me)
    for resolution in Resolution:
        assert sum(each.succeeded for each in await store.stats.read(resolution, 0, 2**60)) == 2
