"""The thread that waits for the disk, so that nobody else does.

    commit, commit, commit            written to the log, visible to all, by one writer after the other
         \\______  |  ______/
             fdatasync                one for all that have come meanwhile
                 |
     answers: now they are on disk

A commit that waited for the disk inside its turn would keep every writer of every process waiting with it. The log only grows
between two checkpoints, and a checkpoint is itself synced by SQLite: so what was committed before a sync is on disk after it,
and nothing can be on disk without what it was built on.
"""

import fcntl
import os
import threading
from collections.abc import Callable
from pathlib import Path
from queue import Empty, SimpleQueue

FsyncCallback = Callable[[OSError | None], None]
"""Called on the syncer's thread once it is on disk, or with the error because of which nobody knows."""

_F_FULLFSYNC = getattr(fcntl, "F_FULLFSYNC", None)
"""On macOS fsync only reaches the memory of the disk: this one has the disk write it down."""
_fdatasync = getattr(os, "fdatasync", os.fsync)


def fsync_file(
    file: int, *, full: int | None = _F_FULLFSYNC, control: Callable[[int, int], object] = fcntl.fcntl
) -> None:
    """Return when all that was written to this file would survive a power cut."""
    if full is not None:
        try:
            control(file, full)
        except OSError:  # not every file system knows it: then as SQLite does
            os.fsync(file)
    else:
        _fdatasync(file)


class FsyncThread:
    """Belongs to a writer whose connection is open: while it is, SQLite does not replace the log."""

    def __init__(self, wal_path: Path) -> None:
        self._wal_path = wal_path
        self._callbacks: SimpleQueue[FsyncCallback | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._file: int | None = None

    def after_fsync(self, callback: FsyncCallback) -> None:
        """Call this when everything that is committed by now is on disk."""
        self._callbacks.put(callback)
        if self._thread is None:
            self._thread = threading.Thread(target=self._main, name="drumbeat syncer", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Answer those who wait, and end."""
        if self._thread is not None:
            self._callbacks.put(None)
            self._thread.join()

    def _main(self) -> None:
        going = True
        while going:
            waiting = [self._callbacks.get()]
            while True:
                try:
                    waiting.append(self._callbacks.get_nowait())
                except Empty:
                    break
            going = None not in waiting
            error = self._fsync()
            for after in waiting:
                if after is not None:
                    after(error)
        if self._file is not None:
            os.close(self._file)

    def _fsync(self) -> OSError | None:
        try:
            if self._file is None:
                # SQLite keeps no lock on the log itself, so closing this does not drop one (as it would on the database).
                self._file = os.open(self._wal_path, os.O_RDONLY | os.O_CLOEXEC)
            fsync_file(self._file)
        except OSError as error:
            return error
        return None
