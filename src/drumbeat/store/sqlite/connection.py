"""One connection to a SQLite file: how it is opened, its calls, and how its errors are translated.

This module knows nothing of jobs, nor of threads: `writer` and `reader` decide on which thread a connection is used.
"""

import ctypes
import re
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from drumbeat.errors import ConfigError, StoreError, StoreFull, StoreUnavailable
from drumbeat.processes.standard_streams import reopen_streams
from drumbeat.store.sqlfile import repeat_row

# A last resort: our own writers queue for the write lock and never meet here; a sqlite3 shell may hold SQLite's lock.
BUSY_TIMEOUT = 30.0

# Stands for NULL in the rows of a batch. sqlite3 searches an adapter for every None, which takes longer than storing the
# row; for an exact int it does not.
NULL = -1

Parameters = Sequence[Any] | Mapping[str, Any]

# Batches are padded to one of these sizes with rows of NULL, so that there are few statements to prepare.
_BATCH_SIZES = (1, 8, 64, 512)
_NUMBERED = re.compile(r"\?(\d+)")
_NOT_A_DATABASE = (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT)


def file_uri(path: Path, mode: str) -> str:
    """The URI by which SQLite opens this file in this mode."""
    return f"file:{quote(str(path))}?mode={mode}"


def connect(path: Path, mode: str, **options: Any) -> sqlite3.Connection:
    """A connection of the driver, for every use of this file in this process.

    SQLite closes a descriptor below 3 again and asks for another; that drops all locks which this process has on the file, and
    the next process that closes its own connection deletes the log. So those must be open, whatever a handler has closed.
    """
    reopen_streams()
    db: sqlite3.Connection = sqlite3.connect(
        file_uri(path, mode), uri=True, isolation_level=None, check_same_thread=False, **options
    )
    return db


@contextmanager
def translate_errors(path: Path) -> Iterator[None]:
    """Raise errors of sqlite3 in the block as `translate_error` gives them."""
    try:
        yield
    except sqlite3.Error as error:
        raise translate_error(error, path) from error


def translate_error(error: Exception, path: Path) -> Exception:
    """An error of sqlite3 or of the system as one of ours, with its cause. Wrong values and wrong SQL are bugs and stay."""
    translated = error
    if isinstance(error, sqlite3.Error):
        translated = _translate_sqlite_error(error, path)
    elif isinstance(error, OSError):
        translated = StoreUnavailable(f"{path}: {error}")
    if translated is not error:
        translated.__cause__ = error
    return translated


def _translate_sqlite_error(error: sqlite3.Error, path: Path) -> Exception:
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
    """A SQLite connection whose statements return single values: a batch of rows is one JSON text."""

    def __init__(self, path: Path, *, read_only: bool, busy_timeout: float = BUSY_TIMEOUT) -> None:
        # A reader must not create the file anew after it was deleted.
        self._db = connect(path, "rw" if read_only else "rwc", timeout=busy_timeout, cached_statements=256)
        self._execute: Callable[[str, Parameters], sqlite3.Cursor] = self._db.execute
        self.last_rowid = 0
        """The rowid of the last row that `run_rows` inserted."""
        try:
            self.run("PRAGMA temp_store = MEMORY")
            if read_only:
                self.run("PRAGMA query_only = ON")
            else:
                self.run("PRAGMA cache_size = -8192")
                # A write is durable when it is acknowledged (law 9): not by FULL, which syncs each commit inside the write
                # lock, but by `fsync_thread`, outside of it. The writer makes checkpoints; SQLite syncs them.
                self.run("PRAGMA synchronous = NORMAL")
                self.run("PRAGMA wal_autocheckpoint = 0")
                self.run("PRAGMA checkpoint_fullfsync = ON")  # has an effect on macOS only, as has fullfsync
        except BaseException:
            self._db.close()
            raise

    def run(self, sql: str, parameters: Parameters = ()) -> int:
        """Execute a statement. Returns how many rows it changed."""
        return self._execute(sql, parameters).rowcount

    def value(self, sql: str, parameters: Parameters = ()) -> Any:
        """The only value of the only row, or None."""
        cursor = self._execute(sql, parameters)
        row = cursor.fetchone()
        cursor.close()
        return None if row is None else row[0]

    def row(self, sql: str, parameters: Parameters = ()) -> Any:
        cursor = self._execute(sql, parameters)
        row = cursor.fetchone()
        cursor.close()
        return row

    def rows(self, sql: str, parameters: Parameters = ()) -> list[Any]:
        """All rows as they are stored. Bytes of a text that are not UTF-8 become lone surrogates."""
        with self._lossless_text():
            return self._execute(sql, parameters).fetchall()

    def named_rows(self, sql: str, parameters: Parameters = ()) -> list[dict[str, Any]]:
        """As `rows`, each row by the names of its columns."""
        with self._lossless_text():
            cursor = self._execute(sql, parameters)
            names = [column[0] for column in cursor.description]
            return [dict(zip(names, row, strict=True)) for row in cursor]

    @contextmanager
    def _lossless_text(self) -> Iterator[None]:
        before, self._db.text_factory = self._db.text_factory, _decode_lossless
        try:
            yield
        finally:
            self._db.text_factory = before

    def run_rows(self, sql: str, width: int, rows: Sequence[Sequence[Any]], fixed: Sequence[Any] = ()) -> int:
        """Execute a statement once for a batch: its `VALUES (?, ...)` takes all rows, with NULL for None; ?1 is fixed[0].

        Returns how many rows it changed.
        """
        if len(rows) == 1:
            text, before, after = batch_statement(sql, 1)
            cursor = self._execute(text, [*[fixed[at] for at in before], *rows[0], *[fixed[at] for at in after]])
            if cursor.rowcount:
                self.last_rowid = cursor.lastrowid or 0
            return cursor.rowcount
        changed = 0
        for text, parameters in _split_batches(sql, width, rows, fixed):
            cursor = self._execute(text, parameters)
            if cursor.rowcount:
                changed += cursor.rowcount
                self.last_rowid = cursor.lastrowid or 0
        return changed

    def checkpoint(self) -> bool:
        """Copy the log into the database and empty it, without waiting. True: a reader still uses the log."""
        self.run("PRAGMA busy_timeout = 0")
        try:
            return bool(self.value("PRAGMA wal_checkpoint(TRUNCATE)"))
        finally:
            self.run(f"PRAGMA busy_timeout = {BUSY_TIMEOUT * 1_000:.0f}")

    @property
    def total_changes(self) -> int:
        """How many rows this connection has changed, also by triggers, which `run` does not count."""
        return self._db.total_changes

    @property
    def in_transaction(self) -> bool:
        return self._db.in_transaction

    def interrupt(self) -> None:
        """Make a running statement end with an error. Safe on any thread, also when the connection was just closed."""
        with suppress(sqlite3.ProgrammingError):
            self._db.interrupt()

    def close(self) -> None:
        self._db.close()

    def leak(self) -> None:
        """Call this instead of `close` when the files were deleted or replaced."""
        leak_connection(self._db)


def leak_connection(db: sqlite3.Connection) -> None:
    """Keep this connection open until the process ends, also when the interpreter shuts down.

    Closing the last connection copies its log into the database, and then deletes the log by its name: by now that may be
    another log, with acknowledged jobs in it. A reference in a module is not enough: modules are cleared at exit.
    """
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(db))


def _decode_lossless(text: bytes) -> str:
    return text.decode("utf-8", "surrogateescape")


class BatchStatement(NamedTuple):
    """A statement for a number of rows, all of whose placeholders are nameless."""

    text: str
    before: Sequence[int]
    """Which fixed parameters stand before the rows."""
    after: Sequence[int]


@lru_cache(maxsize=256)
def batch_statement(sql: str, count: int) -> BatchStatement:
    """The statement for `count` rows, with `?` in the place of each ?1, ?2 ...

    Python 3.12.0 to 3.12.3 take these for names, and warn (python/cpython#117995): an error where a program, or one of its
    handlers, makes errors of warnings.
    """
    text = repeat_row(sql, count)
    fixed = [(found.start(), int(found[1]) - 1) for found in _NUMBERED.finditer(text)]
    rows_at = text.index("VALUES (?")
    before, after = ([number for at, number in fixed if (at < rows_at) is side] for side in (True, False))
    return BatchStatement(_NUMBERED.sub("?", text), before, after)


def _split_batches(
    sql: str, width: int, rows: Sequence[Sequence[Any]], fixed: Sequence[Any]
) -> Iterator[tuple[str, list[Any]]]:
    largest = _BATCH_SIZES[-1]
    for start in range(0, len(rows), largest):
        chunk = rows[start : start + largest] if len(rows) > largest else rows
        size = next(size for size in _BATCH_SIZES if size >= len(chunk))
        text, before, after = batch_statement(sql, size)
        parameters = [fixed[at] for at in before]
        for row in chunk:
            parameters += row
        parameters += [NULL] * ((size - len(chunk)) * width)
        parameters += [fixed[at] for at in after]
        yield text, parameters
