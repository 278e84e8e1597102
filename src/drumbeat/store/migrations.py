"""Numbered migrations, and which code may run on which schema; shared by the SQL engines, which execute them.

A migration is a file `0002_words.sql`, or a folder `0001_words/` of such files, applied in the order of their names. It may say
`-- oldest_code: 3`: code that knows less than migration 3 cannot use the schema from here on. Migrations only add; what is no
longer used is removed one release later, so code and schema of neighbouring releases run together. A released migration never
changes (tests/engines/schema_snapshot.py).
"""

import re

import msgspec

from drumbeat.errors import SchemaOutOfDate

_NAME = re.compile(r"(\d{4})_\w+(\.sql)?")
_OLDEST = re.compile(r"^-- oldest_code: (\d+)[ \t]*$", re.MULTILINE)


class Migration(msgspec.Struct, frozen=True, kw_only=True):
    number: int
    sql: str
    oldest_code: int
    """The smallest `known` of code that can use the schema after this migration."""


class SchemaVersion(msgspec.Struct, frozen=True, kw_only=True):
    """The version that a store has recorded; version 0 is an empty store."""

    version: int = 0
    oldest_code: int = 0


def load_migrations(package: str) -> tuple[Migration, ...]:
    """All migrations of an engine, in order; their numbers are 1, 2, 3 ..."""
    # Imported late: it loads a dozen modules that only an opened store needs.
    from importlib import resources

    entries = (entry for entry in resources.files(package).iterdir() if _NAME.fullmatch(entry.name))
    migrations: list[Migration] = []
    oldest_code = 1
    for expected, entry in enumerate(sorted(entries, key=lambda entry: entry.name), start=1):
        if int(entry.name[:4]) != expected:
            raise ValueError(f"{package}/{entry.name}: its number should be {expected:04}")
        files = sorted(entry.iterdir(), key=lambda file: file.name) if entry.is_dir() else [entry]
        sql = "\n".join(file.read_text("utf-8") for file in files)
        if said := _OLDEST.search(sql):
            oldest_code = int(said.group(1))
        migrations.append(Migration(number=expected, sql=sql, oldest_code=oldest_code))
    if not migrations:
        raise ValueError(f"{package}: no migrations")
    return tuple(migrations)


def pending_migrations(migrations: tuple[Migration, ...], found: SchemaVersion) -> tuple[Migration, ...]:
    """The migrations that this store still needs.

    Raises:
        SchemaOutOfDate: the store is newer, and says that code of this age cannot use it.
    """
    known = migrations[-1].number
    if found.version > known and found.oldest_code > known:
        raise SchemaOutOfDate(found=found.version, known=known)
    return migrations[found.version :]
