"""Which code may run on which schema."""

import pytest

from drumbeat.errors import SchemaOutOfDate
from drumbeat.store.migrations import Migration, SchemaVersion, load_migrations, pending_migrations
from tests.engines.schema_snapshot import changed_migrations, fingerprint

KNOWN = tuple(Migration(number=number, sql="", oldest_code=oldest) for number, oldest in ((1, 1), (2, 1), (3, 2)))


@pytest.mark.parametrize(
    ("version", "oldest_code", "numbers"),
    [(0, 0, [1, 2, 3]), (1, 1, [2, 3]), (3, 2, []), (4, 3, []), (9, 3, [])],
)
def test_a_store_gets_the_migrations_that_it_lacks(version: int, oldest_code: int, numbers: list[int]) -> None:
    found = pending_migrations(KNOWN, SchemaVersion(version=version, oldest_code=oldest_code))
    assert [migration.number for migration in found] == numbers


def test_a_store_that_says_that_this_code_is_too_old_is_refused() -> None:
    with pytest.raises(SchemaOutOfDate) as caught:
        pending_migrations(KNOWN, SchemaVersion(version=5, oldest_code=4))
    assert (caught.value.found, caught.value.known) == (5, 3)


def test_the_sqlite_engines_migrations_are_numbered_from_1() -> None:
    migrations = load_migrations("drumbeat.store.sqlite.migrations")
    assert [migration.number for migration in migrations] == list(range(1, len(migrations) + 1))
    assert migrations[0].oldest_code == 1


def test_a_released_migration_that_was_changed_or_deleted_is_named() -> None:
    first = fingerprint("CREATE TABLE a (b);")
    released = f"# comment\nsqlite 1 {first} 1.0\nsqlite 2 {fingerprint('DROP')} 1.1\npostgres 1 x 1.0\n"
    same = Migration(number=1, sql="-- another comment\nCREATE TABLE a\n  (b);", oldest_code=1)
    other = Migration(number=1, sql="CREATE TABLE a (b, c);", oldest_code=1)
    second = Migration(number=2, sql="DROP", oldest_code=1)
    assert changed_migrations("sqlite", (same, second), released) == []
    assert changed_migrations("sqlite", (other, second), released) == [1]
    assert changed_migrations("sqlite", (same,), released) == [2]
