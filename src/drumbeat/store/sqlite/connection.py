"""One connection to a SQLite file: how it is opened, what it may be asked, how its errors are told.

This module knows nothing of jobs. It does not decide which thread a connection belongs to; `writer` and `reader` do.
"""

import ctypes
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

from drumbeat.errors import ConfigError, StoreError, StoreFull, StoreUnavailable
from drumbeat.store.sqlfile import repeat_row

# A last resort: our own writers queue for their turn and never meet; a stranger's sqlite3 shell may hold the lock.
BUSY_TIMEOUT = 30.0

# What stands for NULL in the rows of a batch. sqlite3 looks for an adapter of every None, which takes longer than storing
# the row; of an exact int it does not.
NULL = -1

Parameters = Sequence[Any] | Mapping[str, Any]

# Batches are brought to one of these sizes with rows of NULL above, so that there are few statements to prepare.
_BATCH_SIZES = (1, 8, 64, 512)
_NOT_A_DATABASE = (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT)


def file_uri(path: Path, mode: str) -> str:
    """A file's name as SQLite takes it together with a mode."""
    return f"file:{quote(str(path))}?mode={mode}"


@contextmanager
def translate_errors(path: Path) -> Iterator[None]:
    """Turn sqlite3's errors into ours, in this one place, with the cause kept."""
    try:
        yield
    except sqlite3.Error as error:
        raise translate_error(error, path) from error


def translate_error(error: sqlite3.Error, path: Path) -> Exception:
    """Our word for an error of sqlite3. What the caller's own values or our SQL got wrong stays as it is: a bug."""
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
    if code == sqlite3.SQLITE_FULL:
        return StoreFull(f"{path}: the disk is full")
    if code in _NOT_A_DATABASE:
        return ConfigError(f"{path} is not a SQLite database, or is damaged: {error}", "url")
    if code in {sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH}:
        return ConfigError(f"{path} cannot be written: {error}", "url")
    if isinstance(error, sqlite3.OperationalError | sqlite3.InternalError) and code != sqlite3.SQLITE_ERROR:
        return StoreUnavailable(f"{path}: {error}")
    if isinstance(error, sqlite3.ProgrammingError) and "closed" in str(error):
        return StoreUnavailable(f"{path}: the connection is closed")
    return error if not isinstance(error, sqlite3.OperationalError) else StoreError(f"{path}: {error}")


class SqliteConnection:
    """A SQLite connection that answers in single values: a batch of rows travels as one JSON text."""

    def __init__(self, path: Path, *, read_only: bool, busy_timeout: float = BUSY_TIMEOUT) -> None:
        # A reader must not create the file anew after somebody has deleted it.
        place = file_uri(path, "rw" if read_only else "rwc")
        self._db = sqlite3.connect(
            place, uri=True, timeout=busy_timeout, isolation_level=None, check_same_thread=False, cached_statements=256
        )
        self.last_rowid = 0
        """The rowid of the last row that `run_rows` inserted."""
        try:
            self.run("PRAGMA temp_store = MEMORY")
            if read_only:
                self.run("PRAGMA query_only = ON")
            else:
                self.run("PRAGMA cache_size = -8192")
                # Durable when it is answered (law 9): not by FULL, where every commit waits for the disk in its turn, but by
                # the syncer, outside of it. Checkpoints are made in turn, by the writer, and synced by SQLite.
                self.run("PRAGMA synchronous = NORMAL")
                self.run("PRAGMA wal_autocheckpoint = 0")
                self.run("PRAGMA checkpoint_fullfsync = ON")  # of effect on macOS only, as is fullfsync
        except BaseException:
            self._db.close()
            raise

    def run(self, sql: str, parameters: Parameters = ()) -> int:
        """Execute a statement; how many rows it changed."""
        return self._db.execute(sql, parameters).rowcount

    def value(self, sql: str, parameters: Parameters = ()) -> Any:
        """The only value of the only row, or None."""
        cursor = self._db.execute(sql, parameters)
        row = cursor.fetchone()
        cursor.close()
        return None if row is None else row[0]

    def row(self, sql: str, parameters: Parameters = ()) -> Any:
        cursor = self._db.execute(sql, parameters)
        row = cursor.fetchone()
        cursor.close()
        return row

    def rows(self, sql: str, parameters: Parameters = ()) -> list[Any]:
        """All rows as they are stored, whatever that is. A text that is no UTF-8 comes with lone surrogates in it."""
        self._db.text_factory = _decode_lossless
        try:
            return self._db.execute(sql, parameters).fetchall()
        finally:
            self._db.text_factory = str

    def named_rows(self, sql: str, parameters: Parameters = ()) -> list[dict[str, Any]]:
        """As `rows`, each by the names of its columns."""
        self._db.text_factory = _decode_lossless
        try:
            cursor = self._db.execute(sql, parameters)
            names = [column[0] for column in cursor.description]
            return [dict(zip(names, row, strict=True)) for row in cursor]
        finally:
            self._db.text_factory = str

    def run_rows(self, sql: str, width: int, rows: Sequence[Sequence[Any]], fixed: Sequence[Any] = ()) -> int:
        """Execute a statement once for a batch: its `VALUES (?, ...)` takes all rows, with NULL for None.

        Gives how many rows it changed.
        """
        changed = 0
        for parameters, statement in _split_batches(sql, width, rows, fixed):
            cursor = self._db.execute(statement, parameters)
            if cursor.rowcount:
                changed += cursor.rowcount
                self.last_rowid = cursor.lastrowid or 0
        return changed

    def checkpoint(self) -> bool:
        """Bring the log into the database and empty it, without waiting for anybody. True: somebody kept it in use."""
        self.run("PRAGMA busy_timeout = 0")
        try:
            return bool(self.value("PRAGMA wal_checkpoint(TRUNCATE)"))
        finally:
            self.run(f"PRAGMA busy_timeout = {BUSY_TIMEOUT * 1_000:.0f}")

    @property
    def total_changes(self) -> int:
        """How many rows this connection has ever changed, by triggers too, which `run` does not count."""
        return self._db.total_changes

    @property
    def in_transaction(self) -> bool:
        return self._db.in_transaction

    def interrupt(self) -> None:
        """Make a statement under way end with an error. Safe from any thread, also when its own has just closed it."""
        with suppress(sqlite3.ProgrammingError):
            self._db.interrupt()

    def close(self) -> None:
        self._db.close()

    def leak(self) -> None:
        """Instead of `close`, when its files were deleted or replaced."""
        leak_connection(self._db)


def leak_connection(db: sqlite3.Connection) -> None:
    """Keep this connection open until the process ends, also when the interpreter tidies up.

    Whoever closes a database as the last brings its own log into it, and then deletes the log by its name: by now that may be
    another, with jobs in it that were acknowledged. A reference in a module is not enough: modules are emptied at exit.
    """
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(db))


def _decode_lossless(text: bytes) -> str:
    return text.decode("utf-8", "surrogateescape")


def _split_batches(
    sql: str, width: int, rows: Sequence[Sequence[Any]], fixed: Sequence[Any]
) -> Iterator[tuple[list[Any], str]]:
    largest = _BATCH_SIZES[-1]
    for start in range(0, len(rows), largest):
        chunk = rows[start : start + largest] if len(rows) > largest else rows
        size = next(size for size in _BATCH_SIZES if size >= len(chunk))
        parameters = [*fixed]
        for row in chunk:
            parameters += row
        parameters += [NULL] * ((size - len(chunk)) * width)
        yield parameters, repeat_row(sql, size)
