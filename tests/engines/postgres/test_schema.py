"""The schema of PostgreSQL is the sum of its migrations, and reads as schema.txt says."""

from typing import Any

from drumbeat.store.postgres.error_translation import MIGRATIONS
from tests.engines.schema_snapshot import RELEASED, changed_migrations, compare, describe_postgres


async def test_the_schema_after_all_migrations_is_the_one_that_is_checked_in(raw: Any) -> None:
    compare("postgres", await describe_postgres(raw))


def test_no_released_migration_has_changed() -> None:
    assert changed_migrations("postgres", MIGRATIONS, RELEASED.read_text("utf-8")) == []
