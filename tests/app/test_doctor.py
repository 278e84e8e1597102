"""What is wrong with a cluster: each sign is made in a real store, on every engine, and found."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from drumbeat import Drumbeat
from drumbeat.admin.doctor import examine, worst_level
from drumbeat.clock import SYSTEM, Clock
from drumbeat.core.claim import blocked_on_version
from drumbeat.core.health import HealthCheck, HealthLevel
from drumbeat.core.instance import Role
from drumbeat.core.job import OutcomeKind
from drumbeat.core.lock import NewTicket
from drumbeat.store.protocol import Store
from tests.cli.command import invoke
from tests.contract import making, scheduling
from tests.contract.making import HOUR
from tests.waiting import until

CONTROLLER = (Role.WORKER, Role.CONTROLLER)


@pytest.fixture
async def app(store_url: str) -> AsyncIterator[Drumbeat]:
    async with Drumbeat(store_url) as app:
        yield app


@pytest.fixture
async def store(app: Drumbeat) -> Store:
    return await app._internals.store()


async def examined(app: Drumbeat, clock: Clock = SYSTEM) -> dict[str, HealthCheck]:
    """Findings by name; of two with one name the worse one."""
    found: dict[str, HealthCheck] = {}
    for each in await examine(app._internals.client, clock):
        found[each.name] = (
            each if worst_level([each, *filter(None, [found.get(each.name)])]) is each.level else found[each.name]
        )
    return found


async def test_where_nothing_is_wrong_everything_that_was_looked_at_is_ok(app: Drumbeat, store: Store) -> None:
    worker = await making.worker(store, roles=CONTROLLER)
    await store.instances.heartbeat(worker, 0, lead=HOUR)
    await making.claimed_one(store, worker)
    await making.add(store, making.new_job())
    await scheduling.put(store, scheduling.new_schedule(), next_at=await store.inspect.now() + HOUR)
    await store.locks.acquire(NewTicket(id="t", lock="sweep", lease=HOUR))
    found = await examined(app)
    assert {name: each.level for name, each in found.items()} == dict.fromkeys(
        [
            "workers",
            "queues",
            "tasks",
            "runs",
            "schedules",
            "locks",
            "dependencies",
            "limits",
            "running jobs",
            "dead letters",
            "stored records",
        ],
        HealthLevel.OK,
    )


async def test_an_idle_store_without_workers_is_only_a_note(app: Drumbeat) -> None:
    found = await examined(app)
    assert found["workers"].level is HealthLevel.NOTE
    assert worst_level(found.values()) is HealthLevel.NOTE


async def test_ready_jobs_without_any_worker_are_bad(app: Drumbeat, store: Store) -> None:
    await making.add(store, making.new_job())
    found = await examined(app)
    assert (found["workers"].level, found["queue default"].level) == (HealthLevel.BAD, HealthLevel.BAD)
    assert found["workers"].value == "none is alive, and 1 job could run"
    assert found["tasks"].level is HealthLevel.NOTE  # nobody can tell whether a worker would know them


async def test_a_queue_with_ready_jobs_that_nobody_takes_is_bad(app: Drumbeat, store: Store) -> None:
    await making.worker(store, queues=("critical",))
    await making.add(store, making.new_job())
    found = (await examined(app))["queue default"]
    assert (found.level, found.value) == (HealthLevel.BAD, "1 job ready, and no living worker takes it")
    assert "--queues default" in found.advice


async def test_a_paused_queue_is_a_warning_when_jobs_wait_in_it(app: Drumbeat, store: Store) -> None:
    await making.worker(store)
    await store.jobs.pause_queue("default", by="ada", reason="closed")
    assert (await examined(app))["queue default"].level is HealthLevel.NOTE
    await making.add(store, making.new_job())
    found = (await examined(app))["queue default"]
    assert (found.level, found.value) == (HealthLevel.WARN, "paused by ada (closed); 1 job ready")


async def test_a_queue_that_lags_is_a_warning(app: Drumbeat, store: Store) -> None:
    await making.worker(store)
    await making.add(store, making.new_job(run_at=await store.inspect.now() - HOUR))
    found = (await examined(app))["queue default"]
    assert (found.level, found.value) == (HealthLevel.WARN, "1 job ready, the oldest for 1h")


async def test_a_task_that_no_worker_knows_is_bad_and_the_closest_name_given(app: Drumbeat, store: Store) -> None:
    await making.worker(store)
    await making.add(store, making.new_job("gret"), making.new_job("gret", delay=HOUR))
    found = (await examined(app))["task gret"]
    assert (found.level, found.value) == (HealthLevel.BAD, "2 jobs wait for it, and no living worker knows it")
    assert "the nearest name is 'greet'" in found.advice


async def test_jobs_of_another_version_are_a_warning(app: Drumbeat, store: Store) -> None:
    worker = await making.worker(store)
    job = await making.claimed_one(store, worker)
    parked = blocked_on_version("greet", "s0")
    await making.end(store, worker, job, OutcomeKind.BLOCKED, blocked_on=parked, started_at=None)
    found = (await examined(app))["task greet"]
    assert (found.level, found.value) == (HealthLevel.WARN, "1 job waits for a worker of another version of it")


async def test_an_overdue_schedule_is_bad(app: Drumbeat, store: Store) -> None:
    await making.worker(store, roles=CONTROLLER)
    await scheduling.put(store, scheduling.new_schedule(), next_at=await store.inspect.now() - HOUR)
    found = (await examined(app))["schedule nightly"]
    assert (found.level, found.value) == (HealthLevel.BAD, "its fire time was 1h ago, and it has not fired")


async def test_schedules_without_a_controller_are_reported(app: Drumbeat, store: Store) -> None:
    await making.worker(store)
    await scheduling.put(store, scheduling.new_schedule(), next_at=await store.inspect.now() + HOUR)
    assert (await examined(app))["controllers"].level is HealthLevel.WARN


async def test_controllers_without_a_leader_are_a_note(app: Drumbeat, store: Store) -> None:
    worker = await making.worker(store, roles=CONTROLLER)
    assert (await examined(app))["leader"].level is HealthLevel.NOTE
    await store.instances.heartbeat(worker, 0, lead=HOUR)
    assert "leader" not in await examined(app)


async def test_a_lock_with_waiters_and_no_living_holder_is_bad(app: Drumbeat, store: Store) -> None:
    await store.locks.acquire(NewTicket(id="holder", lock="sweep", lease=300_000))
    await store.locks.acquire(NewTicket(id="waits", lock="sweep", lease=HOUR))
    assert (await examined(app))["locks"].level is HealthLevel.OK

    async def stands_still() -> HealthCheck | None:
        return (await examined(app)).get("lock sweep")

    found = await until(stands_still)
    assert (found.level, found.value) == (HealthLevel.BAD, "1 ticket waiting, and no living process holds it")


async def test_a_line_before_a_full_rate_window_does_move(app: Drumbeat, store: Store) -> None:
    await store.locks.acquire(NewTicket(id="first", lock="edgar", per=HOUR, lease=HOUR))
    await store.locks.release(["first"])
    await store.locks.acquire(NewTicket(id="second", lock="edgar", per=HOUR, lease=HOUR))
    assert (await examined(app))["locks"].level is HealthLevel.OK


async def test_a_silent_instance_and_its_running_jobs_are_reported(app: Drumbeat, store: Store) -> None:
    worker = await making.worker(store)
    job = await making.claimed_one(store, worker)
    app.configure({"heartbeat": 0.05, "dead_after": 0.5})

    async def silent() -> dict[str, HealthCheck] | None:
        found = await examined(app)
        return found if f"instance {worker}" in found else None

    found = await until(silent)
    assert found[f"instance {worker}"].level is HealthLevel.WARN
    assert (found["running jobs"].level, job.id in found["running jobs"].value) == (HealthLevel.BAD, True)
    await making.worker(store)
    assert (await examined(app))["running jobs"].level is HealthLevel.WARN  # somebody lives who will free it


async def test_an_instance_whose_late_results_were_refused_is_reported(app: Drumbeat, store: Store) -> None:
    worker = await making.worker(store)
    job = await making.claimed_one(store, worker)
    for _ in range(2):
        await making.end(store, worker, job, OutcomeKind.RELEASED)
    await making.end(store, worker, job, OutcomeKind.SUCCEEDED)
    [instance] = await app.instances.list()
    assert instance.refused > 0
    found = (await examined(app))[f"instance {worker}"]
    assert (found.level, "refused" in found.value) == (HealthLevel.WARN, True)


async def test_two_versions_of_an_app_side_by_side_are_a_note(app: Drumbeat, store: Store) -> None:
    for version in ("1", "2"):
        await making.worker(store, version=version)
    assert (await examined(app))["app shop"].value == "versions '1', '2' run side by side"


async def test_dead_letters_are_counted(app: Drumbeat, store: Store) -> None:
    await making.dead_letter(store, await making.worker(store))
    found = (await examined(app))["dead letters"]
    assert (found.level, found.value) == (HealthLevel.NOTE, "1")


async def test_the_doctor_tells_the_facts_of_the_store_as_well(app: Drumbeat) -> None:
    facts, all_of_it = await app.system.facts(), await app.system.doctor()
    assert [each.name for each in all_of_it[: len(facts)]] == [each.name for each in facts]
    assert "workers" in [each.name for each in all_of_it[len(facts) :]]
    assert len(await asyncio.to_thread(app.sync.system.doctor)) == len(all_of_it)


def test_the_command_tells_everything_and_ends_with_1_when_something_is_bad(
    store_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DRUMBEAT_URL", store_url)
    before = json.loads(invoke("doctor", "--json").stdout)
    assert {"name": "dead letters", "level": "ok", "value": "0", "advice": ""} in before["findings"]
    asyncio.run(one_job(store_url))
    bad = invoke("doctor")
    assert (bad.exit_code, bad.stderr) == (1, "")
    assert "1 job ready, and no living worker takes it" in bad.stdout
    assert json.loads(invoke("doctor", "--json").stdout)["level"] == "bad"


async def one_job(url: str) -> None:
    async with Drumbeat(url) as app:
        await making.add(await app._internals.store(), making.new_job())


def test_the_command_ends_with_0_when_nothing_is_bad(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    fine = invoke("doctor", "--url", f"sqlite:///{tmp_path}/fresh.db")
    assert (fine.exit_code, fine.stderr) == (0, "")
    assert ": 0 bad, " in fine.stdout
