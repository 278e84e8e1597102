"""What the doctor says about limits: each sign is made in a real store, on every engine, and found."""

from collections.abc import AsyncIterator

import msgspec
import pytest

from drumbeat import Drumbeat
from drumbeat.admin.limit_checks import LaneMiscount, LimitsSample, check_limits, read_limits
from drumbeat.clock import SYSTEM
from drumbeat.core.health import HealthCheck, HealthLevel
from drumbeat.core.limits import Bounds, GroupInfo
from drumbeat.store.protocol import Store
from tests.app.test_doctor import examined
from tests.contract.lanes import add_jobs, declare, finish, take
from tests.contract.making import HOUR, worker


@pytest.fixture
async def app(store_url: str) -> AsyncIterator[Drumbeat]:
    async with Drumbeat(store_url) as app:
        yield app


@pytest.fixture
async def store(app: Drumbeat) -> Store:
    return await app._internals.store()


async def test_limits_that_do_their_work_are_ok(app: Drumbeat, store: Store) -> None:
    instance = await worker(store)
    await declare(store, each=Bounds(2), whole=Bounds(5))
    await add_jobs(store, "a", 9)
    await finish(store, instance, *await take(store, instance))
    await take(store, instance)
    assert (await examined(app))["limits"].level is HealthLevel.OK


async def test_jobs_under_limits_that_nobody_has_declared_are_bad(app: Drumbeat, store: Store) -> None:
    await worker(store)
    await add_jobs(store, "a", 2)
    await add_jobs(store, "b", 1, line="", queue="mail")
    found = await examined(app)
    wrong = found["limits of task greet in queue default"]
    assert (wrong.level, wrong.value) == (
        HealthLevel.BAD,
        "2 jobs wait under them, and no worker has ever declared them",
    )
    assert found["limits of queue mail"].value.startswith("1 job waits")


async def test_a_group_that_is_full_while_a_job_waits_for_an_hour_is_a_warning(app: Drumbeat, store: Store) -> None:
    instance = await worker(store)
    await declare(store, each=Bounds(2))
    await declare(store, "sent", each=Bounds(None, 1, HOUR))
    past = await store.inspect.now() - 2 * HOUR
    await add_jobs(store, "tenant:7", 3, run_at=past)
    await add_jobs(store, "b", 2, line="sent", run_at=past)
    await add_jobs(store, "c", 3)
    await take(store, instance)
    found = await examined(app)
    wrong = found["group 'tenant:7'"]
    assert wrong.level is HealthLevel.WARN
    assert wrong.value == "in task greet in queue default it runs 2 of 2, and its first job has waited for 2h"
    assert "drumbeat limits set-group" in wrong.advice
    assert "it has used up its rate" in found["group 'b'"].value
    assert "group 'c'" not in found


async def test_counts_that_are_right_are_told_as_such_while_jobs_run(app: Drumbeat, store: Store) -> None:
    instance = await worker(store)
    await declare(store, each=Bounds(2))
    await add_jobs(store, "a", 3)
    await take(store, instance)
    sample = await read_limits(store, SYSTEM, 100)
    assert (len(sample.lines), len(sample.groups), sample.miscounts) == (1, 1, [])


class WrongLimits:
    """The limits of a store whose counts have drifted."""

    def __init__(self, store: Store) -> None:
        self._limits = store.limits
        self.list_lines = store.limits.list_lines
        self.busiest_groups = store.limits.busiest_groups

    async def find_groups(self, lanes: list[tuple[str, str]]) -> list[GroupInfo | None]:
        found = await self._limits.find_groups(lanes)
        return [each and msgspec.structs.replace(each, running=each.running + 1) for each in found]


class WrongStore:
    def __init__(self, store: Store) -> None:
        self.inspect = store.inspect
        self.limits = WrongLimits(store)


async def test_a_count_that_stays_wrong_is_bad(store: Store) -> None:
    instance = await worker(store)
    await declare(store, each=Bounds(2))
    await add_jobs(store, "a", 3)
    await take(store, instance)
    sample = await read_limits(WrongStore(store), SYSTEM, 100)  # type: ignore[arg-type]
    assert sample.miscounts == [LaneMiscount(queue="default", lane="greet a", counted=3, actual=2)]
    [found] = check_limits(sample, await store.inspect.now())
    assert (found.name, found.level) == ("group 'a'", HealthLevel.BAD)
    assert found.value == "in task greet in queue default it counts 3 running jobs, and has 2"


def test_of_many_wrong_counts_some_are_named() -> None:
    wrong = [LaneMiscount(queue="q", lane=f"t {number}", counted=1, actual=0) for number in range(9)]
    found: list[HealthCheck] = list(check_limits(LimitsSample(miscounts=wrong), 0))
    assert len(found) == 6
    assert found[-1].value == "4 groups more with a wrong count of running jobs"
