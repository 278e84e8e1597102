"""What a person should know of a SQLite store: the file, its disk, and what a power cut would take."""

import contextlib
import os
import sqlite3
import stat
from pathlib import Path

from drumbeat.model.finding import Finding, Level
from drumbeat.store import facts
from drumbeat.store.facts import fact
from drumbeat.store.sqlite import place
from drumbeat.store.sqlite.connection import Connection
from drumbeat.store.sqlite.reader import Reader
from drumbeat.store.sqlite.schema import KNOWN
from drumbeat.store.sqlite.statements import FactSql, SchemaSql
from drumbeat.store.sqlite.writer import LONG_LOG

_IN_MEMORY = frozenset({"tmpfs", "ramfs"})
_LITTLE = 8 * place.ROOM


class SqliteFacts:
    def __init__(self, sql: FactSql, schema: SchemaSql, *, path: Path, reader: Reader, room: int) -> None:
        self._sql = sql
        self._schema = schema
        self._path = path
        self._reader = reader
        self._room = room

    async def gather(self) -> list[Finding]:
        return await self._reader.read(self._gather)

    def _gather(self, db: Connection) -> list[Finding]:
        """On the reader's thread: the disk may be slow to answer, too."""
        mode = str(db.value(self._sql.journal_mode))
        return [
            fact("engine", f"SQLite {sqlite3.sqlite_version}"),
            facts.schema(db.value(self._schema.version) or 0, KNOWN),
            fact("file", str(self._path)),
            fact("size", facts.size(_bytes(self._path))),
            _log(_bytes(Path(f"{self._path}-wal"))),
            _journal(mode),
            fact("durability", "what was acknowledged is on disk: it survives a crash of the program and a power cut"),
            _permissions(self._path),
            _file_system(place.file_system_of(self._path.parent)),
            self._free(),
            fact("clock", "the same as this host's"),
        ]

    def _free(self) -> Finding:
        disk = os.statvfs(self._path.parent)
        free = disk.f_bavail * disk.f_frsize
        level, advice = Level.OK, ""
        if free < self._room:
            level, advice = Level.BAD, f"jobs are refused until {facts.size(self._room)} are free: make room"
        elif free < max(_LITTLE, self._room):
            level, advice = Level.WARN, f"from {facts.size(self._room)} on jobs are refused: make room"
        return Finding(name="free disk", level=level, value=facts.size(free), advice=advice)


def _bytes(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _permissions(path: Path) -> Finding:
    """Who else on this machine may read or change the jobs."""
    modes = {}
    for name in (path, *(Path(f"{path}-{part}") for part in ("wal", "shm", "turn"))):
        with contextlib.suppress(FileNotFoundError):
            modes[name] = stat.S_IMODE(name.stat().st_mode)
    value = f"{modes.get(path, 0):04o}"
    folder = stat.S_IMODE(path.parent.stat().st_mode)
    if open_to_all := [str(name) for name, mode in modes.items() if mode & stat.S_IWOTH]:
        advice = f"every user of this machine can change your jobs: run `chmod o-rwx {' '.join(open_to_all)}`"
        return Finding(name="permissions", level=Level.WARN, value=value, advice=advice)
    if folder & stat.S_IWOTH and not folder & stat.S_ISVTX:
        advice = f"every user of this machine can replace the file: run `chmod o-w {path.parent}`"
        return Finding(name="permissions", level=Level.WARN, value=f"{value}, folder {folder:04o}", advice=advice)
    if open_to_all := [str(name) for name, mode in modes.items() if mode & stat.S_IROTH]:
        advice = (
            "every user of this machine can read the arguments and results of your jobs: if that is not meant, run"
            f" `chmod o-rwx {' '.join(open_to_all)}`"
        )
        return Finding(name="permissions", level=Level.NOTE, value=value, advice=advice)
    return fact("permissions", value)


def _log(length: int) -> Finding:
    if length <= 4 * LONG_LOG:
        return fact("write-ahead log", facts.size(length))
    return Finding(
        name="write-ahead log",
        level=Level.WARN,
        value=facts.size(length),
        advice="somebody keeps a read transaction open (a backup, a sqlite3 shell), so that it cannot be emptied: end it",
    )


def _journal(mode: str) -> Finding:
    if mode == "wal":
        return fact("journal mode", mode)
    advice = (
        "somebody has changed it while it was in use: readers and writers now wait for each other; restart all programs"
    )
    return Finding(name="journal mode", level=Level.BAD, value=mode, advice=advice)


def _file_system(kind: str) -> Finding:
    if place.is_network(kind):
        advice = "SQLite can lose data there: use a local disk, or PostgreSQL"
        return Finding(name="file system", level=Level.BAD, value=kind, advice=advice)
    if kind in _IN_MEMORY:
        advice = "it is in memory: a restart of the machine loses all jobs"
        return Finding(name="file system", level=Level.WARN, value=kind, advice=advice)
    return fact("file system", kind or "unknown: this system has no list of mounts")
