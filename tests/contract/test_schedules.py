"""Schedules as records: made, changed, paused, retired, found when they are due; and what is on record about them."""

import pytest

from drumbeat.core.instance import InstanceState
from drumbeat.core.schedule import (
    CatchUp,
    Fire,
    FireOutcome,
    NewSchedule,
    OnceState,
    Origin,
    Overlap,
    RuleKind,
    ScheduleState,
    SkippedRange,
)
from drumbeat.store.protocol import Store
from tests.contract.making import worker
from tests.contract.scheduling import MINUTE, SECOND, after, change, fire, got, moment, names, new_schedule, put

FULL = NewSchedule(
    name="Grüße 🚀",
    task="charge",
    kind=RuleKind.CRON,
    rule="0 3 * * *",
    queue="critical",
    args='{"amount": 1.10, "who": "Zoë"}',
    signature="s9",
    tz="Europe/Berlin",
    priority=2,
    retries=7,
    timeout=3 * SECOND,
    crash_limit=1,
    on_dead="refund",
    catch_up=CatchUp.ALL,
    catch_up_limit=17,
    max_late=MINUTE,
    overlap=Overlap.QUEUE,
    jitter=5 * SECOND,
    start=1_000,
    end=2**52,
    origin=Origin.CODE,
    app="shop",
    version="2026.11",
)


async def test_a_schedule_is_found_as_it_was_given(store: Store) -> None:
    before = await store.inspect.now()
    assert await store.schedules.put(FULL, revision=None, cursor=5, next_at=77, by="me")
    found = await got(store, FULL.name)
    assert found.definition == FULL
    assert (found.state, found.revision, found.cursor, found.next_at) == (ScheduleState.ACTIVE, 1, 5, 77)
    assert (found.current, found.changed_by, found.reason) == (None, "me", "")
    assert before <= found.created_at == found.changed_at == found.declared_at <= await store.inspect.now()  # type: ignore[operator]


async def test_one_made_at_run_time_is_declared_by_nobody(store: Store) -> None:
    assert (await put(store, new_schedule())).declared_at is None


async def test_a_name_that_nobody_has_given_is_not_found(store: Store) -> None:
    assert await store.schedules.get("nightly") is None
    assert await store.schedules.list_page() == []


async def test_a_second_schedule_of_the_same_name_is_refused(store: Store) -> None:
    first = await put(store, new_schedule(), next_at=10)
    assert not await store.schedules.put(new_schedule(task="other"), revision=None, cursor=None, next_at=99, by="")
    assert await got(store) == first


async def test_a_definition_is_changed_only_by_who_knows_its_revision(store: Store) -> None:
    first = await put(store, new_schedule(), next_at=10, cursor=4)
    wrong = first.revision + 1
    assert not await store.schedules.put(new_schedule(rule="5"), revision=wrong, cursor=None, next_at=20, by="x")
    assert await got(store) == first
    changed = new_schedule(rule="5", priority=1)
    assert await store.schedules.put(changed, revision=first.revision, cursor=None, next_at=20, by="x")
    second = await got(store)
    assert (second.definition, second.revision, second.next_at, second.changed_by) == (changed, 2, 20, "x")
    assert (second.cursor, second.created_at) == (4, first.created_at)


async def test_pausing_takes_away_the_next_moment_and_resuming_sets_it(store: Store) -> None:
    first = await put(store, new_schedule(), next_at=10)
    assert await change(store, first, ScheduleState.PAUSED, next_at=10)
    paused = await got(store)
    assert (paused.state, paused.next_at, paused.revision) == (ScheduleState.PAUSED, None, 2)
    assert (paused.changed_by, paused.reason) == ("somebody", "because")
    assert (await store.schedules.get_due(10)).schedules == []
    assert not await change(store, first, ScheduleState.ACTIVE, next_at=30)
    missed = SkippedRange(first=11, last=19, count=3, reason="paused")
    assert await change(store, paused, ScheduleState.ACTIVE, cursor=19, next_at=30, skipped=missed)
    resumed = await got(store)
    assert (resumed.state, resumed.next_at, resumed.cursor) == (ScheduleState.ACTIVE, 30, 19)
    [record] = (await store.schedules.list_fires(["nightly"]))["nightly"]
    assert (record.at, record.last, record.count, record.outcome) == (11, 19, 3, FireOutcome.SKIPPED)
    assert (record.reason, record.job) == ("paused", None)


async def test_a_change_that_is_refused_leaves_no_record(store: Store) -> None:
    first = await put(store, new_schedule())
    skip = SkippedRange(first=11, last=19, count=3, reason="paused")
    assert await change(store, first, ScheduleState.PAUSED)
    assert not await change(store, first, ScheduleState.ACTIVE, skipped=skip)
    assert (await store.schedules.list_fires(["nightly"]))["nightly"] == []


async def test_a_retired_name_is_made_anew_and_keeps_its_record_and_cursor(store: Store) -> None:
    first = await put(store, new_schedule())
    await fire(store, "nightly", 7)
    assert await change(store, first, ScheduleState.RETIRED)
    assert await store.schedules.put(new_schedule(rule="9"), revision=None, cursor=None, next_at=50, by="again")
    anew = await got(store)
    assert (anew.state, anew.definition.rule, anew.next_at, anew.cursor) == (ScheduleState.ACTIVE, "9", 50, 7)
    assert anew.revision == first.revision + 2
    assert [record.at for record in (await store.schedules.list_fires(["nightly"]))["nightly"]] == [7]


async def test_pages_are_by_name_without_the_retired(store: Store) -> None:
    for name in ("d", "a", "c", "b"):
        await put(store, new_schedule(name))
    await change(store, await got(store, "b"), ScheduleState.RETIRED)
    assert names(await store.schedules.list_page()) == ["a", "c", "d"]
    assert names(await store.schedules.list_page(all=True)) == ["a", "b", "c", "d"]
    assert names(await store.schedules.list_page(after="a", limit=1)) == ["c"]
    assert names(await store.schedules.list_page(after="d")) == []


async def test_what_is_due_comes_oldest_first_with_the_moment_after(store: Store) -> None:
    now = await store.inspect.now()
    for name, next_at in (("c", 30), ("a", 20), ("b", 10), ("later", now + 60 * MINUTE), ("much", now + 90 * MINUTE)):
        await put(store, new_schedule(name), next_at=next_at)
    await put(store, new_schedule("never"), next_at=None)
    due = await store.schedules.get_due(10)
    assert names(due.schedules) == ["b", "a", "c"]
    assert due.schedules[0] == await got(store, "b")
    assert (due.next_at, due.min_interval) == (now + 60 * MINUTE, None)
    assert now <= due.now <= await store.inspect.now()
    assert names((await store.schedules.get_due(2)).schedules) == ["b", "a"]


async def test_nothing_due_and_nothing_to_come_is_said(store: Store) -> None:
    due = await store.schedules.get_due(10)
    assert (due.schedules, due.next_at, due.min_interval) == ([], None, None)


async def test_the_shortest_interval_that_is_under_way_is_told(store: Store) -> None:
    for name, rule in (("long", 9 * SECOND), ("short", 2 * SECOND), ("idle", SECOND)):
        await put(store, after(name, rule=str(rule)))
    await fire(store, "long", 1)
    assert (await store.schedules.get_due(10)).min_interval == 9 * SECOND
    await fire(store, "short", 1)
    assert (await store.schedules.get_due(10)).min_interval == 2 * SECOND


async def test_the_record_of_fires_is_newest_first_and_has_pages(store: Store) -> None:
    schedule = await put(store, new_schedule(overlap=Overlap.ALLOW))
    before = await store.inspect.now()
    fired = await fire(store, "nightly", 10, 20, skipped=(SkippedRange(first=3, last=8, count=6, reason="late"),))
    found = (await store.schedules.list_fires(["nightly"]))["nightly"]
    after_ = await store.inspect.now()
    assert all(before <= each.recorded_at <= after_ for each in found)
    recorded = found[0].recorded_at
    facts = {"schedule": schedule.name, "recorded_at": recorded}
    assert found == [
        Fire(at=20, last=20, count=1, outcome=FireOutcome.FIRED, reason="", job=fired.jobs[1], **facts),  # type: ignore[arg-type]
        Fire(at=10, last=10, count=1, outcome=FireOutcome.FIRED, reason="", job=fired.jobs[0], **facts),  # type: ignore[arg-type]
        Fire(at=3, last=8, count=6, outcome=FireOutcome.SKIPPED, reason="late", job=None, **facts),  # type: ignore[arg-type]
    ]
    assert [each.at for each in (await store.schedules.list_fires(["nightly"], before=20))["nightly"]] == [10, 3]
    assert [each.at for each in (await store.schedules.list_fires(["nightly"], before=20, limit=1))["nightly"]] == [10]
    assert (await store.schedules.list_fires(["other"]))["other"] == []


async def test_fires_of_many_schedules_are_read_in_one_call(store: Store) -> None:
    for name, times in (("a", (10, 20, 30)), ("b", (15,)), ("c", ())):
        await put(store, new_schedule(name, overlap=Overlap.ALLOW))
        if times:
            await fire(store, name, *times)
    names = ["b", "a", "c", "unknown", "a"]
    found = await store.schedules.list_fires(names, before=30, limit=1)
    assert {name: [each.at for each in fires] for name, fires in found.items()} == {
        "a": [20],
        "b": [15],
        "c": [],
        "unknown": [],
    }
    found = await store.schedules.list_fires(names)
    assert [each.at for each in found["a"]] == [30, 20, 10]
    assert {each.schedule for each in found["a"]} == {"a"}
    assert await store.schedules.list_fires([]) == {}


async def test_old_records_are_forgotten_oldest_first(store: Store) -> None:
    await put(store, new_schedule(overlap=Overlap.ALLOW))
    await fire(store, "nightly", 10, 20, 30, skipped=(SkippedRange(first=1, last=25, count=2, reason="late"),))
    assert await store.schedules.prune_fires(10, 100) == 0
    assert await store.schedules.prune_fires(30, 1) == 1
    assert [each.at for each in (await store.schedules.list_fires(["nightly"]))["nightly"]] == [30, 20, 1]
    assert await store.schedules.prune_fires(30, 100) == 2
    assert [each.at for each in (await store.schedules.list_fires(["nightly"]))["nightly"]] == [30]
    assert (await got(store)).cursor == 30


async def test_only_what_code_no_longer_declares_is_retired_and_only_beside_living_instances(store: Store) -> None:
    for name, app in (("gone", "shop"), ("other", "bank")):
        await put(store, new_schedule(name, origin=Origin.CODE, app=app))
    await put(store, new_schedule("by hand", app="shop"))
    await put(store, new_schedule("kept", origin=Origin.CODE, app="shop"))
    await put(store, new_schedule("paused", origin=Origin.CODE, app="shop"))
    await change(store, await got(store, "paused"), ScheduleState.PAUSED)
    silent_since = await store.inspect.now() + 1
    assert await store.schedules.retire_undeclared(silent_since) == []
    living = await worker(store, app="shop")
    while await store.inspect.now() <= silent_since:
        pass
    await store.schedules.declare(["kept", "nobody knows this one"])
    assert sorted(await store.schedules.retire_undeclared(silent_since)) == ["gone", "paused"]
    assert await store.schedules.retire_undeclared(silent_since) == []
    gone = await got(store, "gone")
    assert (gone.state, gone.next_at, gone.revision) == (ScheduleState.RETIRED, None, 2)
    assert gone.reason == "no longer declared"
    assert names(await store.schedules.list_page()) == ["by hand", "kept", "other"]
    await store.instances.deregister(living, "left")
    assert await store.schedules.retire_undeclared(await store.inspect.now() + MINUTE) == []


async def test_whoever_declares_hears_what_is_not_in_the_store(store: Store) -> None:
    await put(store, new_schedule("kept", origin=Origin.CODE, app="shop"))
    await put(store, new_schedule("deleted", origin=Origin.CODE, app="shop"))
    await change(store, await got(store, "deleted"), ScheduleState.RETIRED)
    assert await store.schedules.declare([]) == []
    assert await store.schedules.declare(["kept", "deleted"]) == []
    assert sorted(await store.schedules.declare(["two", "deleted", "kept", "one"])) == ["one", "two"]
    assert names(await store.schedules.list_page(all=True)) == ["deleted", "kept"]


async def test_firing_does_not_touch_the_revision(store: Store) -> None:
    first = await put(store, new_schedule())
    await fire(store, "nightly", moment(9))
    assert (await got(store)).revision == first.revision


async def test_what_is_done_once_is_one_instances_until_it_is_done(store: Store) -> None:
    one, two = await worker(store), await worker(store)
    assert await store.schedules.claim_once("warm@1", one) is OnceState.YOURS
    assert await store.schedules.claim_once("warm@1", two) is OnceState.BUSY
    assert await store.schedules.claim_once("warm@1", one) is OnceState.YOURS
    assert await store.schedules.claim_once("warm@2", two) is OnceState.YOURS
    assert not await store.schedules.complete_once("warm@1", two)
    assert await store.schedules.complete_once("warm@1", one)
    assert await store.schedules.claim_once("warm@1", one) is OnceState.DONE
    assert await store.schedules.claim_once("warm@1", two) is OnceState.DONE


@pytest.mark.parametrize("end", [InstanceState.DEAD, InstanceState.LEFT])
async def test_what_an_instance_began_and_did_not_end_is_taken_up_by_another(store: Store, end: InstanceState) -> None:
    one, two, three = await worker(store), await worker(store), await worker(store)
    await store.schedules.claim_once("warm", one)
    if end is InstanceState.DEAD:
        await store.instances.declare_dead(one, beat=None, started=None, reason="test")
    else:
        await store.instances.deregister(one, "left")
    assert await store.schedules.claim_once("warm", two) is OnceState.YOURS
    assert await store.schedules.claim_once("warm", three) is OnceState.BUSY
    assert not await store.schedules.complete_once("warm", one)
