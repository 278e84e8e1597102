"""Turns: who may write next, among all threads and processes that use one file.

SQLite's own way to wait is to try again after a random nap; among 8 busy writers a heartbeat waited 18 s. Here everybody
who wants to write or to make a checkpoint first takes an exclusive flock on `<file>-turn`; the kernel wakes the waiters in
their order. The lock is the open file's, not the process's, so two threads with a descriptor each exclude one another too.

A killed process loses its lock with its descriptors. A forked child would inherit them, and keep the lock beyond its
parent's death: so children close theirs at birth.
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
    """A place in the line; `with turn:` waits for it."""

    def __init__(self, path: Path) -> None:
        try:
            file_checks.create_private_file(path)
            self._file = _open_lock_file(f"{path}-lock", stat.S_IMODE(os.stat(path).st_mode))
        except (FileNotFoundError, PermissionError) as error:
            # To ask again would not help: a person must choose another place.
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
    """For reading: that is enough for a lock. With the permissions of the database, so that who shares that shares this."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        return os.open(path, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    os.fchmod(file, mode)
    return file


def _close_in_child() -> None:
    for turn in list(_open_locks):
        turn.close()


os.register_at_fork(after_in_child=_close_in_child)
