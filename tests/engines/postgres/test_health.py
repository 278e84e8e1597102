"""Health checks of a server, also for a user with few permissions."""

from typing import Any

import pytest

from drumbeat.core.health import HealthCheck, HealthLevel
from drumbeat.store.postgres import PostgresStore, health
from tests.engines.postgres.conftest import address_of


async def find_check(store: PostgresStore, name: str) -> HealthCheck:
    return next(each for each in await store.inspect.check_health() if each.name == name)


async def test_a_long_open_transaction_is_reported(postgres: PostgresStore, raw: Any) -> None:
    assert (await find_check(postgres, "long transactions")).value == "none"
    async with raw.transaction():
        await raw.fetchval("SELECT 1")
        assert (await find_check(postgres, "long transactions")).value.startswith("1 open, the oldest for")


def test_one_that_is_open_for_long_is_a_warning_that_names_it() -> None:
    row = {"open": 2, "seconds": 4_000.0, "what": "process 7, psql, idle in transaction"}
    found = health._transactions(row)
    assert (found.level, found.value) == (
        HealthLevel.WARN,
        "2 open, the oldest for 1h 6m (process 7, psql, idle in transaction)",
    )


async def test_a_pooler_in_transaction_mode_is_reported(url: str) -> None:
    async with await PostgresStore.open(address_of(f"{url}?pooler=transaction")) as store:
        found = await find_check(store, "pooler")
    assert (found.level, found.value.split(":")[0]) == (HealthLevel.NOTE, "transaction mode")


@pytest.mark.parametrize(
    ("settings", "level"),
    [
        ({"fsync": "on", "full_page_writes": "on", "synchronous_commit": "on"}, HealthLevel.OK),
        ({"fsync": "on", "full_page_writes": "on", "synchronous_commit": "off"}, HealthLevel.WARN),
        ({"fsync": "off", "full_page_writes": "on", "synchronous_commit": "on"}, HealthLevel.BAD),
        ({"fsync": "on", "full_page_writes": "off", "synchronous_commit": "on"}, HealthLevel.BAD),
    ],
)
def test_durability_is_judged_by_the_settings(settings: dict[str, str], level: HealthLevel) -> None:
    assert health._durability(settings).level is level


@pytest.mark.parametrize(
    ("setting", "row", "level"),
    [
        ("on", {"dead": 5, "live": 1, "seconds": 60.0}, HealthLevel.OK),
        ("on", {"dead": 5, "live": 1, "seconds": None}, HealthLevel.OK),
        ("on", {"dead": 900_000, "live": 1_000_000, "seconds": 60.0}, HealthLevel.OK),
        ("on", {"dead": 900_000, "live": 1_000, "seconds": 60.0}, HealthLevel.WARN),
        ("on", None, HealthLevel.NOTE),
        ("off", None, HealthLevel.BAD),
    ],
)
def test_dead_rows_that_pile_up_are_a_warning(setting: str, row: Any, level: HealthLevel) -> None:
    assert health._autovacuum(setting, row).level is level


async def test_a_user_that_owns_only_the_tables_gets_the_same_checks(
    postgres: PostgresStore, url: str, raw: Any
) -> None:
    """Nothing that is asked needs a superuser: all names are there."""
    await raw.execute("CREATE ROLE plain LOGIN PASSWORD 'plain'")
    try:
        for what in ("USAGE ON SCHEMA", "ALL ON ALL TABLES IN SCHEMA"):
            await raw.execute(f"GRANT {what} drumbeat TO plain")
        scheme, _, place = url.partition("://")
        other = f"{scheme}://plain:plain@{place.rpartition('@')[2]}"
        async with await PostgresStore.open(address_of(other)) as store:
            theirs = [each.name for each in await store.inspect.check_health()]
        assert theirs == [each.name for each in await postgres.inspect.check_health()]
    finally:
        await raw.execute("DROP OWNED BY plain")
        await raw.execute("DROP ROLE plain")
