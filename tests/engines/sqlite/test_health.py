"""What a person is told of a file and its disk."""

from pathlib import Path

import pytest

from drumbeat.core.health import HealthCheck, HealthLevel
from drumbeat.store.sqlite import SqliteStore, health
from tests.contract.making import add, new_job


async def find_check(store: SqliteStore, name: str) -> HealthCheck:
    return next(each for each in await store.inspect.check_health() if each.name == name)


async def test_the_file_and_its_size_are_told(sqlite: SqliteStore, path: Path) -> None:
    await add(sqlite, *(new_job() for _ in range(100)))
    assert (await find_check(sqlite, "file")).value == str(path)
    assert (await find_check(sqlite, "journal mode")).value == "wal"
    assert (await find_check(sqlite, "write-ahead log")).value != "0 bytes"


async def test_a_disk_on_which_jobs_are_refused_is_bad(path: Path) -> None:
    async with await SqliteStore.open(path, url=f"sqlite:///{path}", min_free_bytes=1 << 60) as store:
        found = await find_check(store, "free disk")
    assert found.level is HealthLevel.BAD
    assert "jobs are refused" in found.advice


@pytest.mark.parametrize(
    ("kind", "level"),
    [("ext4", HealthLevel.OK), ("", HealthLevel.OK), ("nfs4", HealthLevel.BAD), ("tmpfs", HealthLevel.WARN)],
)
def test_a_file_system_is_told_for_what_it_is(kind: str, level: HealthLevel) -> None:
    found = health._check_file_system(kind)
    assert found.level is level
    assert bool(found.advice) == (level is not HealthLevel.OK)


def test_a_log_that_cannot_be_emptied_is_told() -> None:
    assert health._check_wal(16 << 20).level is HealthLevel.OK
    assert health._check_wal(100 << 20).level is HealthLevel.WARN


def test_another_journal_mode_is_bad() -> None:
    assert health._check_journal_mode("delete").level is HealthLevel.BAD


@pytest.mark.parametrize(
    ("file", "folder", "level", "advice"),
    [
        (0o600, 0o700, HealthLevel.OK, ""),
        (0o660, 0o770, HealthLevel.OK, ""),
        (0o600, 0o1777, HealthLevel.OK, ""),
        (0o644, 0o755, HealthLevel.NOTE, "read the arguments"),
        (0o666, 0o755, HealthLevel.WARN, "chmod o-rwx"),
        (0o600, 0o777, HealthLevel.WARN, "chmod o-w"),
        (0o666, 0o777, HealthLevel.WARN, "chmod o-rwx"),
    ],
)
async def test_who_else_may_touch_the_file_is_told(
    sqlite: SqliteStore, path: Path, file: int, folder: int, level: HealthLevel, advice: str
) -> None:
    path.chmod(file)
    path.parent.chmod(folder)
    found = await find_check(sqlite, "permissions")
    assert found.level is level
    assert advice in found.advice and found.value.startswith(f"{file:04o}")
    path.parent.chmod(0o700)
