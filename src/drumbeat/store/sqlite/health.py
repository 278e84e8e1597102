"""Health checks of a SQLite store: the file, its disk and its durability."""

import contextlib
import os
import sqlite3
import stat
from pathlib import Path

from drumbeat.core.health import HealthCheck, HealthLevel
from drumbeat.store import health
from drumbeat.store.health import healthy, unhealthy
from drumbeat.store.sqlite import file_checks
from drumbeat.store.sqlite.connection import SqliteConnection
from drumbeat.store.sqlite.parts import SqliteOperations
from drumbeat.store.sqlite.schema import LATEST_VERSION
from drumbeat.store.sqlite.writer import CHECKPOINT_BYTES

_IN_MEMORY = frozenset({"tmpfs", "ramfs"})
_LOW_FREE_BYTES = 8 * file_checks.MIN_FREE_BYTES


class SqliteHealth(SqliteOperations):
    async def check_all(self) -> list[HealthCheck]:
        return await self._admin_reader.read(self._check_all)

    def _check_all(self, db: SqliteConnection) -> list[HealthCheck]:
        """On the reader's thread, because the disk may be slow too."""
        mode = str(db.value(self._sql.journal_mode))
        return [
            healthy("engine", f"SQLite {sqlite3.sqlite_version}"),
            health.check_schema(db.value(self._parts.sql.schema.version) or 0, LATEST_VERSION),
            healthy("file", str(self._parts.path)),
            healthy("size", health.format_size(_file_size(self._parts.path))),
            _check_wal(_file_size(Path(f"{self._parts.path}-wal"))),
            _check_journal_mode(mode),
            healthy(
                "durability", "what was acknowledged is on disk: it survives a crash of the program and a power cut"
            ),
            _check_permissions(self._parts.path),
            _check_file_system(file_checks.file_system_of_folder(self._parts.path.parent)),
            self._check_free_disk(),
            healthy("clock", "the same as this host's"),
        ]

    def _check_free_disk(self) -> HealthCheck:
        disk = os.statvfs(self._parts.path.parent)
        free = disk.f_bavail * disk.f_frsize
        level, advice, least = HealthLevel.OK, "", health.format_size(self._disk_space.min_free_bytes)
        if free < self._disk_space.min_free_bytes:
            level, advice = HealthLevel.BAD, f"jobs are refused until {least} are free: make room"
        elif free < max(_LOW_FREE_BYTES, self._disk_space.min_free_bytes):
            level, advice = HealthLevel.WARN, f"from {least} on jobs are refused: make room"
        return HealthCheck(name="free disk", level=level, value=health.format_size(free), advice=advice)


def _file_size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _check_permissions(path: Path) -> HealthCheck:
    """Whether other users of this machine may read or change the jobs."""
    modes = {}
    for name in (path, *(Path(f"{path}-{part}") for part in ("wal", "shm", "lock"))):
        with contextlib.suppress(FileNotFoundError):
            modes[name] = stat.S_IMODE(name.stat().st_mode)
    value = f"{modes.get(path, 0):04o}"
    folder = stat.S_IMODE(path.parent.stat().st_mode)
    if open_to_all := [str(name) for name, mode in modes.items() if mode & stat.S_IWOTH]:
        advice = f"every user of this machine can change your jobs: run `chmod o-rwx {' '.join(open_to_all)}`"
        return unhealthy(HealthLevel.WARN, "permissions", value, advice)
    if folder & stat.S_IWOTH and not folder & stat.S_ISVTX:
        advice = f"every user of this machine can replace the file: run `chmod o-w {path.parent}`"
        return unhealthy(HealthLevel.WARN, "permissions", f"{value}, folder {folder:04o}", advice)
    if open_to_all := [str(name) for name, mode in modes.items() if mode & stat.S_IROTH]:
        advice = (
            "every user of this machine can read the arguments and results of your jobs: if that is not intended, run"
            f" `chmod o-rwx {' '.join(open_to_all)}`"
        )
        return unhealthy(HealthLevel.NOTE, "permissions", value, advice)
    return healthy("permissions", value)


def _check_wal(length: int) -> HealthCheck:
    if length <= 4 * CHECKPOINT_BYTES:
        return healthy("write-ahead log", health.format_size(length))
    return unhealthy(
        HealthLevel.WARN,
        "write-ahead log",
        health.format_size(length),
        "a program keeps a read transaction open (a backup, a sqlite3 shell), so that the log cannot be emptied: end it",
    )


def _check_journal_mode(mode: str) -> HealthCheck:
    if mode == "wal":
        return healthy("journal mode", mode)
    advice = (
        "it was changed while the file was in use: readers and writers now wait for each other; restart all programs"
    )
    return unhealthy(HealthLevel.BAD, "journal mode", mode, advice)


def _check_file_system(kind: str) -> HealthCheck:
    if file_checks.is_network(kind):
        advice = "SQLite can lose data there: use a local disk, or PostgreSQL"
        return unhealthy(HealthLevel.BAD, "file system", kind, advice)
    if kind in _IN_MEMORY:
        advice = "it is in memory: a restart of the machine loses all jobs"
        return unhealthy(HealthLevel.WARN, "file system", kind, advice)
    return healthy("file system", kind or "unknown: this system has no list of mounts")
