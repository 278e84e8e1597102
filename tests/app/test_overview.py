"""`app.dead.groups`, `app.instances.leader`, `app.system.facts`: what people see at a glance."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from drumbeat import Drumbeat
from drumbeat.core.health import HealthCheck, HealthLevel
from drumbeat.core.job import OutcomeKind
from drumbeat.errors import InvalidArguments
from tests.app.conftest import ManualWorker
from tests.conftest import fresh_url
from tests.contract.making import HOUR, worker
from tests.servers.ports import free_port


async def test_dead_letters_are_shown_in_groups(app: Drumbeat, hand: ManualWorker) -> None:
    @app.task
    async def charge(customer: int) -> None: ...

    for customer in range(3):
        await charge.enqueue(customer)
    await hand.end(OutcomeKind.DEAD)
    [group] = await app.dead.groups()
    assert (group.task, group.error, group.count, group.message) == ("charge", "ValueError", 3, "boom")
    assert await asyncio.to_thread(app.sync.dead.groups, limit=1) == [group]
    with pytest.raises(InvalidArguments, match="from 1 to"):
        await app.dead.groups(limit=0)


async def test_the_leader_is_shown(app: Drumbeat) -> None:
    assert await app.instances.leader() is None
    store = await app._internals.store()
    me = await worker(store)
    await store.instances.heartbeat(me, 0, lead=HOUR)
    leader = await app.instances.leader()
    assert leader is not None and (leader.instance, leader.term) == (me, 1)
    assert await asyncio.to_thread(app.sync.instances.leader) == leader


async def test_the_facts_of_the_store_are_shown(app: Drumbeat) -> None:
    # How large the store is may change between two looks, what it is does not.
    def levels(facts: Sequence[HealthCheck]) -> list[tuple[str, HealthLevel]]:
        return [(each.name, each.level) for each in facts]

    found = await app.system.facts()
    assert found[0] == (await (await app._internals.store()).inspect.check_health())[0]
    assert levels(found) == levels(await (await app._internals.store()).inspect.check_health())
    assert levels(found) == levels(await asyncio.to_thread(app.sync.system.facts))


async def test_the_second_store_has_facts_of_its_own(app_url: str, tmp_path: Path) -> None:
    async with Drumbeat(app_url, coordination=fresh_url("valkey", tmp_path)) as app:
        found = {each.name: each for each in await app.system.facts()}
    assert found["coordination: engine"].value.startswith("Valkey")
    assert "engine" in found


async def test_a_second_store_that_is_away_is_a_finding(app_url: str) -> None:
    async with Drumbeat(app_url, coordination=f"redis://:hush@127.0.0.1:{free_port()}") as app:
        [found] = [each for each in await app.system.facts() if each.name.startswith("coordination: ")]
    assert (found.name, found.level) == ("coordination: store", HealthLevel.BAD)
    assert "hush" not in found.value
