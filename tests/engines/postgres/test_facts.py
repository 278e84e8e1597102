"""What a person is told of a server, also by a user that may see little of it."""

from typing import Any

import pytest

from drumbeat.model.finding import Finding, Level
from drumbeat.store.postgres import PostgresStore, facts
from tests.engines.postgres.conftest import at


async def named(store: PostgresStore, name: str) -> Finding:
    return next(each for each in await store.inspect.facts() if each.name == name)


async def test_a_transaction_that_somebody_keeps_open_is_counted(postgres: PostgresStore, raw: Any) -> None:
    assert (await named(postgres, "long transactions")).value == "none"
    async with raw.transaction():
        await raw.fetchval("SELECT 1")
        assert (await named(postgres, "long transactions")).value.startswith("1 open, the oldest for")


def test_one_that_is_open_for_long_is_a_warning_that_names_it() -> None:
    row = {"open": 2, "seconds": 4_000.0, "what": "process 7, psql, idle in transaction"}
    found = facts._transactions(row)
    assert (found.level, found.value) == (
        Level.WARN,
        "2 open, the oldest for 1h 6m (process 7, psql, idle in transaction)",
    )


async def test_a_pooler_of_transactions_is_told(url: str) -> None:
    async with await PostgresStore.open(at(f"{url}?pooler=transaction")) as store:
        found = await named(store, "pooler")
    assert (found.level, found.value.split(":")[0]) == (Level.NOTE, "transactions")


@pytest.mark.parametrize(
    ("settings", "level"),
    [
        ({"fsync": "on", "full_page_writes": "on", "synchronous_commit": "on"}, Level.OK),
        ({"fsync": "on", "full_page_writes": "on", "synchronous_commit": "off"}, Level.WARN),
        ({"fsync": "off", "full_page_writes": "on", "synchronous_commit": "on"}, Level.BAD),
        ({"fsync": "on", "full_page_writes": "off", "synchronous_commit": "on"}, Level.BAD),
    ],
)
def test_what_a_crash_would_take_goes_by_the_settings(settings: dict[str, str], level: Level) -> None:
    assert facts._durability(settings).level is level


@pytest.mark.parametrize(
    ("setting", "row", "level"),
    [
        ("on", {"dead": 5, "live": 1, "seconds": 60.0}, Level.OK),
        ("on", {"dead": 5, "live": 1, "seconds": None}, Level.OK),
        ("on", {"dead": 900_000, "live": 1_000_000, "seconds": 60.0}, Level.OK),
        ("on", {"dead": 900_000, "live": 1_000, "seconds": 60.0}, Level.WARN),
        ("on", None, Level.NOTE),
        ("off", None, Level.BAD),
    ],
)
def test_dead_rows_that_pile_up_are_a_warning(setting: str, row: Any, level: Level) -> None:
    assert facts._autovacuum(setting, row).level is level


async def test_a_user_that_owns_nothing_but_the_tables_is_told_the_same(
    postgres: PostgresStore, url: str, raw: Any
) -> None:
    """Nothing that is asked needs a superuser: all names are there."""
    await raw.execute("CREATE ROLE plain LOGIN PASSWORD 'plain'")
    try:
        for what in ("USAGE ON SCHEMA", "ALL ON ALL TABLES IN SCHEMA"):
            await raw.execute(f"GRANT {what} drumbeat TO plain")
        scheme, _, place = url.partition("://")
        other = f"{scheme}://plain:plain@{place.rpartition('@')[2]}"
        async with await PostgresStore.open(at(other)) as store:
            theirs = [each.name for each in await store.inspect.facts()]
        assert theirs == [each.name for each in await postgres.inspect.facts()]
    finally:
        await raw.execute("DROP OWNED BY plain")
        await raw.execute("DROP ROLE plain")
