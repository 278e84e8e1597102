"""`app.schedules` and `app.history`, as programs use them."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from drumbeat import Drumbeat
from drumbeat.admin import BackfillResult
from drumbeat.clock import FakeClock
from drumbeat.core.job import OutcomeKind
from drumbeat.core.schedule import CatchUp, FireOutcome, Origin, Overlap, Schedule, ScheduleState
from drumbeat.durations import from_us
from drumbeat.errors import ConfigError, InvalidArguments, UnknownTask
from drumbeat.ids import new_job_id
from drumbeat.schedules.planner import first_fire_time, plan
from tests.app.conftest import ManualWorker
from tests.contract import making

DAY = 86_400


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
async def app(tmp_path: Path, clock: FakeClock) -> AsyncIterator[Drumbeat]:
    """2026 has just begun."""
    async with Drumbeat(f"sqlite:///{tmp_path}/test.db", clock=clock, name="billing", queues=["spare"]) as app:

        @app.task(retries=2, queue="low")
        async def report(kind: str = "short") -> None: ...

        yield app


@pytest.fixture
async def hand(app: Drumbeat) -> ManualWorker:
    return ManualWorker(app, await making.worker(await app._internals.store()))


async def known(app: Drumbeat, name: str) -> Schedule:
    found = await (await app._internals.store()).schedules.get(name)
    assert found is not None
    return found


async def fire(app: Drumbeat, name: str) -> int:
    """What a controller does about it. Returns how many jobs there are."""
    store = await app._internals.store()
    planned = plan(await known(app, name), await store.inspect.now(), new_job_id)
    assert planned is not None
    [fired] = await store.schedules.fire([planned])
    assert fired.applied
    return len(fired.jobs)


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


async def test_a_schedule_is_made_and_shown(app: Drumbeat) -> None:
    made = await app.schedules.create(
        "report",
        name="nightly",
        cron="0 3 * * *",
        tz="Europe/Berlin",
        args={"kind": "long"},
        overlap="queue",
        retries=9,
    )
    assert made == await app.schedules.show("nightly")
    assert [each.name for each in await app.schedules.list()] == ["nightly"]
    assert (made.task, made.queue, made.args, made.retries) == ("report", "low", '{"kind":"long"}', 9)
    assert (made.when, made.cron, made.every) == ("0 3 * * * (Europe/Berlin)", "0 3 * * *", None)
    assert (made.state, made.origin, made.overlap) == (ScheduleState.ACTIVE, Origin.STORE, Overlap.QUEUE)
    assert made.next_at == utc("2026-01-01T02:00:00")
    assert (made.changed_by, made.revision) == ("billing", 1)


async def test_intervals_are_made_by_completion_or_on_a_grid(app: Drumbeat, clock: FakeClock) -> None:
    after = await app.schedules.create(app._internals.registry["report"], every="5m")
    grid = await app.schedules.create("report", name="grid", every=300, grid=True)
    assert (after.name, after.every, after.grid) == ("report", 300.0, False)
    assert after.next_at == from_us(clock.now_us())
    assert (grid.every, grid.grid, grid.when) == (300.0, True, "every 5m, on a grid")
    assert grid.next_at == utc("2026-01-01T00:05:00")


async def test_a_name_that_is_taken_is_refused(app: Drumbeat) -> None:
    await app.schedules.create("report", every=60)
    with pytest.raises(InvalidArguments, match="already"):
        await app.schedules.create("report", cron="@daily")


async def test_a_schedule_is_created_or_replaced_by_name(app: Drumbeat, clock: FakeClock) -> None:
    first = await app.schedules.create("report", name="nightly", cron="0 3 * * *", priority=2, replace=True)
    await clock.advance(60)
    same_rule = await app.schedules.create("report", name="nightly", cron="0 3 * * *", replace=True, by="Ada")
    assert (same_rule.next_at, same_rule.revision, same_rule.changed_by) == (first.next_at, 2, "Ada")
    assert (first.priority, same_rule.priority) == (2, 5)  # what is not given is the default again
    await app.schedules.pause("nightly")
    other_rule = await app.schedules.create("report", name="nightly", every=60, grid=True, replace=True)
    assert (other_rule.state, other_rule.every, other_rule.next_at) == (ScheduleState.PAUSED, 60.0, None)
    await app.schedules.delete("nightly")
    again = await app.schedules.create("report", name="nightly", every=60, replace=True)
    assert again.state is ScheduleState.ACTIVE
    assert [each.name for each in await app.schedules.list()] == ["nightly"]


@pytest.mark.parametrize(
    ("words", "error", "field"),
    [
        ({}, ConfigError, "cron"),
        ({"cron": "@daily", "every": 3}, ConfigError, "cron"),
        ({"cron": "0 0 30 2 *"}, ConfigError, "cron"),
        ({"cron": "@daily", "tz": "Mars"}, ConfigError, "tz"),
        ({"cron": "@daily", "grid": True}, ConfigError, "grid"),
        ({"every": 0}, ConfigError, "every"),
        ({"every": 3, "catch_up": "some"}, ConfigError, "catch_up"),
        ({"every": 3, "queue": "lwo"}, InvalidArguments, "queue"),
        ({"every": 3, "args": {"knid": 1}}, ConfigError, "args"),
        ({"every": 3, "name": "a b"}, ConfigError, "name"),
        ({"every": 3, "evry": 3}, InvalidArguments, "evry"),
        ({"every": 3, "by": "\n"}, InvalidArguments, "by"),
    ],
)
async def test_what_cannot_be_is_refused_naming_the_field(
    app: Drumbeat, words: dict[str, Any], error: type[Exception], field: str
) -> None:
    with pytest.raises(error) as caught:
        await app.schedules.create("report", **words)
    assert field in (getattr(caught.value, "setting", None), getattr(caught.value, "argument", None))
    assert await app.schedules.list() == []


async def test_an_unknown_task_is_refused_with_a_near_one(app: Drumbeat) -> None:
    with pytest.raises(UnknownTask, match="report"):
        await app.schedules.create("reprot", every=60)


async def test_an_unknown_schedule_is_refused(app: Drumbeat) -> None:
    for verb in (app.schedules.show, app.schedules.pause, app.schedules.run_now, app.schedules.history):
        with pytest.raises(InvalidArguments, match="there is no schedule 'nobody'"):
            await verb("nobody")


async def test_what_is_changed_is_changed_and_the_rest_stays(app: Drumbeat) -> None:
    await app.schedules.create("report", cron="0 3 * * *", catch_up="all", jitter=5)
    changed = await app.schedules.change("report", cron="0 4 * * *", overlap="allow", by="ada")
    assert (changed.cron, changed.catch_up, changed.jitter, changed.overlap) == (
        "0 4 * * *",
        CatchUp.ALL,
        5.0,
        Overlap.ALLOW,
    )
    assert changed.next_at == utc("2026-01-01T04:00:00")
    assert (changed.revision, changed.changed_by) == (2, "ada")
    changed = await app.schedules.change("report", args=("long",), tz="Asia/Tokyo")
    assert (changed.args, changed.next_at) == ('{"kind":"long"}', utc("2026-01-01T19:00:00"))
    changed = await app.schedules.change("report", every="1h", tz="UTC")
    assert (changed.cron, changed.every, changed.grid) == (None, 3600.0, False)
    changed = await app.schedules.change("report", grid=True)
    assert (changed.every, changed.grid) == (3600.0, True)


async def test_a_change_of_other_options_keeps_the_next_fire_time(app: Drumbeat, clock: FakeClock) -> None:
    made = await app.schedules.create("report", every=3600, grid=True)
    await clock.advance(7200)
    changed = await app.schedules.change("report", priority=1)
    assert (changed.priority, changed.next_at) == (1, made.next_at)


async def test_a_change_that_cannot_be_changes_nothing(app: Drumbeat) -> None:
    made = await app.schedules.create("report", cron="0 3 * * *")
    with pytest.raises(ConfigError) as caught:
        await app.schedules.change("report", cron="0 0 30 2 *")
    assert caught.value.setting == "cron"
    assert await app.schedules.show("report") == made


async def test_what_code_declares_is_changed_in_the_code(app: Drumbeat) -> None:
    app.cron("@daily", name="declared")(app._internals.registry["report"])
    [definition] = app._internals.declared_schedules()
    store = await app._internals.store()
    await store.schedules.put(definition, revision=None, cursor=None, next_at=None, by="")
    with pytest.raises(InvalidArguments, match="declared in the code of app 'billing'"):
        await app.schedules.change("declared", cron="@hourly")
    assert await app.schedules.pause("declared")


async def test_fires_of_a_pause_are_recorded_as_skipped(app: Drumbeat, clock: FakeClock) -> None:
    await app.schedules.create("report", cron="0 3 * * *")
    assert await app.schedules.pause("report", reason="holidays", by="ada")
    paused = await app.schedules.show("report")
    assert (paused.state, paused.next_at, paused.reason, paused.changed_by) == (
        ScheduleState.PAUSED,
        None,
        "holidays",
        "ada",
    )
    assert not await app.schedules.pause("report")
    await clock.advance(5 * DAY)
    assert await app.schedules.resume("report")
    assert not await app.schedules.resume("report")
    resumed = await app.schedules.show("report")
    assert (resumed.state, resumed.next_at) == (ScheduleState.ACTIVE, utc("2026-01-06T03:00:00"))
    [skipped] = await app.schedules.history("report")
    assert (skipped.outcome, skipped.reason, skipped.count) == (FireOutcome.SKIPPED, "paused", 5)
    assert (skipped.at, skipped.last) == (utc("2026-01-01T03:00:00"), utc("2026-01-05T03:00:00"))


async def test_a_paused_schedule_stays_paused_when_it_is_changed(app: Drumbeat) -> None:
    await app.schedules.create("report", cron="0 3 * * *")
    await app.schedules.pause("report", reason="holidays")
    changed = await app.schedules.change("report", cron="0 4 * * *")
    assert (changed.state, changed.cron, changed.reason, changed.next_at) == (
        ScheduleState.PAUSED,
        "0 4 * * *",
        "holidays",
        None,
    )


async def test_a_deleted_schedule_is_gone_but_on_record_and_its_name_is_free(app: Drumbeat, clock: FakeClock) -> None:
    await app.schedules.create("report", cron="0 3 * * *")
    await clock.advance(DAY)
    assert await fire(app, "report") == 1
    await app.schedules.delete("report", reason="no longer wanted")
    assert await app.schedules.list() == []
    assert [each.state for each in await app.schedules.list(all=True)] == [ScheduleState.RETIRED]
    assert (await app.schedules.show("report")).reason == "no longer wanted"
    assert len(await app.schedules.history("report")) == 1
    with pytest.raises(InvalidArguments, match="any more"):
        await app.schedules.delete("report")
    await app.schedules.create("report", every=60)
    assert len(await app.schedules.history("report")) == 1


async def test_run_now_enqueues_its_job_and_touches_nothing_else(app: Drumbeat, hand: ManualWorker) -> None:
    made = await app.schedules.create("report", cron="0 3 * * *", args=("long",), priority=2, timeout=9)
    handle = await app.schedules.run_now("report")
    job = await app.jobs.show(handle.id)
    assert (job.task, job.args, job.priority, job.timeout) == ("report", '{"kind":"long"}', 2, 9.0)
    await hand.end(OutcomeKind.SUCCEEDED)
    assert await app.schedules.show("report") == made
    assert await handle.result(timeout=5) is None


async def test_backfill_fires_what_was_not_fired(app: Drumbeat, clock: FakeClock) -> None:
    await app.schedules.create("report", cron="0 3 * * *", overlap="allow")
    await clock.advance(5 * DAY)
    assert await fire(app, "report") == 1
    before = await app.schedules.show("report")
    filled = await app.schedules.backfill("report", utc("2026-01-01T00:00:00"), utc("2026-01-05T12:00:00"))
    assert (len(filled.jobs), filled.skipped) == (4, 1)
    after = await app.schedules.show("report")
    assert (after.next_at, after.last_at, after.revision) == (before.next_at, before.last_at, before.revision)
    due = sorted(job.due_at for job in await app.jobs.list(task="report"))
    assert due == [utc(f"2026-01-0{day}T03:00:00") for day in range(1, 6)]
    again = await app.schedules.backfill("report", utc("2026-01-01T00:00:00"), utc("2026-01-05T12:00:00"))
    assert again == BackfillResult(jobs=(), skipped=5)


async def test_backfill_obeys_overlap(app: Drumbeat, clock: FakeClock, hand: ManualWorker) -> None:
    await app.schedules.create("report", cron="0 3 * * *", overlap="queue")
    await clock.advance(4 * DAY)
    filled = await app.schedules.backfill("report", utc("2026-01-01T00:00:00"), utc("2026-01-04T12:00:00"))
    assert len(filled.jobs) == 4
    assert len(await hand.claim()) == 1


async def test_backfill_refuses_what_makes_no_sense(app: Drumbeat, clock: FakeClock) -> None:
    await app.schedules.create("report", every=60, grid=True)
    await app.schedules.create("report", name="after", every=60)
    await clock.advance(20 * DAY)
    now = from_us(clock.now_us())
    hour = timedelta(hours=1)
    for first, last, told in (
        (now - hour, now + hour, "past"),
        (now - hour, now - 2 * hour, "past"),
        (now - 10 * 24 * hour, now, "force"),
        (now - 7 * 24 * hour, now, "10081 fire times"),
        (now - timedelta(seconds=20), now - timedelta(seconds=10), "0 fire times"),
    ):
        with pytest.raises(InvalidArguments, match=told):
            await app.schedules.backfill("report", first, last)
    with pytest.raises(InvalidArguments, match="follows the end of a run"):
        await app.schedules.backfill("after", now - hour, now)
    with pytest.raises(InvalidArguments, match="timezone"):
        await app.schedules.backfill("report", datetime(2026, 1, 1), now)
    assert (await app.schedules.backfill("report", now - 10 * 24 * hour, now - 239 * hour, force=True)).jobs
    await app.schedules.pause("report")
    with pytest.raises(InvalidArguments, match="not active"):
        await app.schedules.backfill("report", now - hour, now)


async def test_a_malformed_schedule_is_shown_nevertheless(app: Drumbeat) -> None:
    made = await app.schedules.create("report", every=60, grid=True)
    store = await app._internals.store()
    strange = msgspec.structs.replace((await known(app, "report")).definition, rule="in a while", tz="Moon/Far")
    assert await store.schedules.put(strange, revision=made.revision, cursor=None, next_at=None, by="")
    [shown] = await app.schedules.list()
    assert (shown.when, shown.every) == ("every 'in a while', on a grid", None)
    with pytest.raises(ConfigError):
        await app.schedules.preview("report")


@pytest.mark.parametrize(
    ("rule", "first", "second"),
    [
        ({"cron": "0 3 1 * *"}, datetime(2020, 1, 1, 3, tzinfo=UTC), datetime(2020, 2, 1, 3, tzinfo=UTC)),
        ({"cron": "0 0 1 1 *"}, datetime(2020, 1, 1, tzinfo=UTC), datetime(2021, 1, 1, tzinfo=UTC)),
        ({"every": "2d", "grid": True}, datetime(2020, 1, 1, tzinfo=UTC), datetime(2020, 1, 3, tzinfo=UTC)),
        ({"every": "2d"}, datetime(2020, 1, 1, tzinfo=UTC), datetime(2020, 1, 3, tzinfo=UTC)),
    ],
)
async def test_a_preview_from_the_past_begins_there(
    app: Drumbeat, rule: dict[str, Any], first: datetime, second: datetime
) -> None:
    found = await app.schedules.preview(**rule, start=datetime(2020, 1, 1, tzinfo=UTC), count=2)
    assert [each.at for each in found] == [first, second]


async def test_preview_needs_no_schedule(app: Drumbeat) -> None:
    found = await app.schedules.preview(cron="0 3 * * *", tz="Europe/Berlin", count=2)
    assert [each.at.isoformat() for each in found] == ["2026-01-01T03:00:00+01:00", "2026-01-02T03:00:00+01:00"]
    await app.schedules.create("report", every=60, grid=True)
    [one] = await app.schedules.preview("report", count=1)
    assert one.at == utc("2026-01-01T00:01:00")
    with pytest.raises(InvalidArguments, match="which schedule"):
        await app.schedules.preview()
    with pytest.raises(InvalidArguments, match="count"):
        await app.schedules.preview("report", count=0)


async def test_a_fire_is_listed_with_its_job(app: Drumbeat, clock: FakeClock, hand: ManualWorker) -> None:
    await app.schedules.create("report", cron="0 3 * * *")
    await clock.advance(3 * 3600 + 5)
    await fire(app, "report")
    await hand.end(OutcomeKind.DEAD)
    [fired] = await app.schedules.history("report")
    assert (fired.outcome, fired.at, fired.late, fired.state) == (
        FireOutcome.FIRED,
        utc("2026-01-01T03:00:00"),
        5.0,
        "dead",
    )
    assert fired.error is not None
    assert fired.finished_at is not None
    assert await app.schedules.history("report", before=fired.at) == []


async def test_every_run_of_a_task_is_listed_with_its_lateness(
    app: Drumbeat, clock: FakeClock, hand: ManualWorker
) -> None:
    await app.schedules.create("report", cron="0 3 * * *")
    await clock.advance(3 * 3600 + 5)
    await fire(app, "report")
    now = clock.now_us()
    await hand.end(OutcomeKind.RETRY, started_at=now, finished_at=now + 1_000)
    later = clock.now_us()
    await hand.end(OutcomeKind.SUCCEEDED, started_at=later, finished_at=later + 2_000)
    last, first = await app.history(task="report")
    assert (first.number, first.outcome, last.number, last.outcome) == (1, "retry", 2, "succeeded")
    assert first.job == last.job
    assert (first.schedule, first.due_at, first.late) == ("report", utc("2026-01-01T03:00:00"), 5.0)
    assert first.error is not None and last.error is None
    assert first.instance is not None
    await app._internals.registry["report"].enqueue()
    await hand.claim()
    running = (await app.history(task=app._internals.registry["report"], limit=1))[0]
    assert (running.outcome, running.finished_at, running.schedule) == ("running", None, None)


def test_the_same_verbs_wait_where_no_loop_runs(tmp_path: Path) -> None:
    app = Drumbeat(f"sqlite:///{tmp_path}/test.db")

    @app.task
    def clean() -> None: ...

    made = app.sync.schedules.create(clean, cron="@daily")
    assert app.sync.schedules.list() == [made]
    assert app.sync.schedules.pause("clean")
    assert app.sync.schedules.resume("clean")
    assert app.sync.schedules.run_now("clean").created
    assert app.sync.schedules.preview("clean", count=3)[0].at == made.next_at
    assert app.sync.schedules.change("clean", cron="@hourly").cron == "@hourly"
    assert app.sync.schedules.history("clean") == []
    assert app.sync.history(task="clean") == []
    app.sync.schedules.delete("clean")
    assert app.sync.schedules.list() == []
    app.sync.close()


async def test_a_declared_schedule_has_the_same_first_fire_time_as_a_created_one(
    app: Drumbeat, clock: FakeClock
) -> None:
    app.cron("@daily", name="declared")(app._internals.registry["report"])
    made = await app.schedules.create("report", cron="@daily")
    [definition] = app._internals.declared_schedules()
    assert made.next_at is not None
    assert first_fire_time(definition, clock.now_us()) == int(made.next_at.timestamp()) * 1_000_000
