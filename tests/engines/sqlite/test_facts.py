"""What a person is told of a file and its disk."""

from pathlib import Path

import pytest

from drumbeat.model.finding import Finding, Level
from drumbeat.store.sqlite import SqliteStore, facts
from tests.contract.making import add, new_job


async def named(store: SqliteStore, name: str) -> Finding:
    return next(each for each in await store.inspect.facts() if each.name == name)


async def test_the_file_and_its_size_are_told(sqlite: SqliteStore, path: Path) -> None:
    await add(sqlite, *(new_job() for _ in range(100)))
    assert (await named(sqlite, "file")).value == str(path)
    assert (await named(sqlite, "journal mode")).value == "wal"
    assert (await named(sqlite, "write-ahead log")).value != "0 bytes"


async def test_a_disk_on_which_jobs_are_refused_is_bad(path: Path) -> None:
    async with await SqliteStore.open(path, url=f"sqlite:///{path}", room=1 << 60) as store:
        found = await named(store, "free disk")
    assert found.level is Level.BAD
    assert "jobs are refused" in found.advice


@pytest.mark.parametrize(
    ("kind", "level"), [("ext4", Level.OK), ("", Level.OK), ("nfs4", Level.BAD), ("tmpfs", Level.WARN)]
)
def test_a_file_system_is_told_for_what_it_is(kind: str, level: Level) -> None:
    found = facts._file_system(kind)
    assert found.level is level
    assert bool(found.advice) == (level is not Level.OK)


def test_a_log_that_cannot_be_emptied_is_told() -> None:
    assert facts._log(16 << 20).level is Level.OK
    assert facts._log(100 << 20).level is Level.WARN


def test_another_journal_mode_is_bad() -> None:
    assert facts._journal("delete").level is Level.BAD


@pytest.mark.parametrize(
    ("file", "folder", "level", "advice"),
    [
        (0o600, 0o700, Level.OK, ""),
        (0o660, 0o770, Level.OK, ""),
        (0o600, 0o1777, Level.OK, ""),
        (0o644, 0o755, Level.NOTE, "read the arguments"),
        (0o666, 0o755, Level.WARN, "chmod o-rwx"),
        (0o600, 0o777, Level.WARN, "chmod o-w"),
        (0o666, 0o777, Level.WARN, "chmod o-rwx"),
    ],
)
async def test_who_else_may_touch_the_file_is_told(
    sqlite: SqliteStore, path: Path, file: int, folder: int, level: Level, advice: str
) -> None:
    path.chmod(file)
    path.parent.chmod(folder)
    found = await named(sqlite, "permissions")
    assert found.level is level
    assert advice in found.advice and found.value.startswith(f"{file:04o}")
    path.parent.chmod(0o700)
