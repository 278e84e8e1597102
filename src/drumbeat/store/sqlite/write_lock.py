"""The write lock: how writers of a SQLite file are serialised, among all threads and processes.

SQLite itself waits by trying again after random sleeps; among 8 busy writers a heartbeat waited 18 s. Here every writer and
every checkpoint first takes an exclusive flock on `<file>-lock`; the kernel wakes the waiters in their order. The lock belongs
to the open file, not to the process, so two threads with a descriptor each exclude each other too.

The kernel releases the lock of a killed process with its descriptors. A forked child inherits them, and would keep the lock
beyond the death of its parent: so children close theirs right after the fork.
"""

import fcntl
import os
import stat
import weakref
from pathlib import Path
from types import TracebackType

from drumbeat.errors import ConfigError
from drumbeat.store.sqlite import file_checks

_open_locks: "weakref.WeakSet[WriteLock]" = weakref.WeakSet()


class WriteLock:
    """`with lock:` waits for the lock and holds it."""

    def __init__(self, path: Path) -> None:
        try:
            file_checks.create_private_file(path)
            self._file = _open_lock_file(f"{path}-lock", stat.S_IMODE(os.stat(path).st_mode))
        except (FileNotFoundError, PermissionError) as error:
            # Trying again would not help: the path must be changed.
            raise ConfigError(f"{path} cannot be written: {error.strerror}: choose another file", "url") from error
        _open_locks.add(self)

    def __enter__(self) -> None:
        fcntl.flock(self._file, fcntl.LOCK_EX)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        fcntl.flock(self._file, fcntl.LOCK_UN)

    def close(self) -> None:
        _open_locks.discard(self)
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def _open_lock_file(path: str, mode: int) -> int:
    """Open it for reading, which is enough for a lock. It gets the permissions of the database: who uses that uses this."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        return os.open(path, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    os.fchmod(file, mode)
    return file


def _close_in_child() -> None:
    for lock in list(_open_locks):
        lock.close()


os.register_at_fork(after_in_child=_close_in_child)
