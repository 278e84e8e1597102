"""What a store says about itself, in words for people."""

from drumbeat.core.health import HealthCheck, HealthLevel
from drumbeat.store.protocol import Store

EVERYWHERE = {"engine", "schema", "size", "durability", "clock"}


async def by_name(store: Store) -> dict[str, HealthCheck]:
    found = await store.inspect.check_health()
    names = [each.name for each in found]
    assert len(set(names)) == len(names)
    return dict(zip(names, found, strict=True))


async def test_every_engine_says_what_it_is_and_what_it_promises(store: Store) -> None:
    found = await by_name(store)
    assert found.keys() >= EVERYWHERE
    assert all(each.value and each.value.isprintable() for each in found.values())
    assert any(char.isdigit() for char in found["engine"].value)
    assert found["schema"].value.startswith("version ")
    assert found["schema"].level is HealthLevel.OK


async def test_a_store_in_order_has_nothing_that_is_wrong(store: Store) -> None:
    """But for the servers of tests, which need not survive a power cut, and are set accordingly."""
    bad = {each.name for each in await store.inspect.check_health() if each.level is HealthLevel.BAD}
    assert bad <= {"durability"}


async def test_whatever_is_wrong_comes_with_advice(store: Store) -> None:
    found = await store.inspect.check_health()
    assert {
        each.name for each in found if each.level in (HealthLevel.WARN, HealthLevel.BAD) and not each.advice
    } == set()


async def test_the_facts_come_in_the_same_order_each_time(store: Store) -> None:
    first, second = await store.inspect.check_health(), await store.inspect.check_health()
    assert [each.name for each in first] == [each.name for each in second]


async def test_clocks_of_one_machine_agree(store: Store) -> None:
    assert (await by_name(store))["clock"].level is HealthLevel.OK
