"""The thread that syncs the write-ahead log to disk, so that no writer waits for the disk while it holds the write lock.

    commit, commit, commit            written to the log and visible to all, by one writer after the other
         \\______  |  ______/
             fdatasync                one for all commits that have come meanwhile
                 |
     on_synced(results): acknowledged

The log only grows between two checkpoints, and SQLite itself syncs a checkpoint: so what was committed before a sync is on disk
after it, and nothing is on disk without what it was built on.
"""

import asyncio
import fcntl
import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Generic, TypeVar

T = TypeVar("T")

_F_FULLFSYNC = getattr(fcntl, "F_FULLFSYNC", None)
"""On macOS fsync only reaches the cache of the disk; this makes the disk write it down."""
_fdatasync = getattr(os, "fdatasync", os.fsync)


def fsync_file(
    file: int, *, full: int | None = _F_FULLFSYNC, control: Callable[[int, int], object] = fcntl.fcntl
) -> None:
    """Return when everything that was written to this file would survive a power cut."""
    if full is not None:
        try:
            control(file, full)
        except OSError:  # not every file system supports it; SQLite falls back in the same way
            os.fsync(file)
    else:
        _fdatasync(file)


class FsyncThread(Generic[T]):
    """Belongs to a writer whose connection is open: while it is, SQLite does not replace the log."""

    def __init__(
        self,
        wal_path: Path,
        on_synced: Callable[[list[T], OSError | None], None],
        *,
        inline_on: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        """`on_synced` is called on this thread, with an error if the results may not be on disk.

        With `inline_on` there is no thread: a sync is a step of this loop.
        """
        self._inline_on = inline_on
        self._wal_path = wal_path
        self._on_synced = on_synced
        self._waiting: SimpleQueue[Sequence[T] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._file: int | None = None

    def after_fsync(self, results: Sequence[T]) -> None:
        """Hand these results to `on_synced` when everything that is committed by now is on disk."""
        self._waiting.put(results)
        if self._inline_on is not None:
            self._inline_on.call_soon(self._main)
        elif self._thread is None:
            self._thread = threading.Thread(target=self._main, name="drumbeat fsync", daemon=True)
            self._thread.start()

    def fsync_now(self) -> None:
        """Return when everything that is committed by now is on disk. On the writer's thread.

        Raises:
            OSError: it may not be.
        """
        file = os.open(self._wal_path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            fsync_file(file)
        finally:
            os.close(file)

    def close(self) -> None:
        """Sync what waits, and end the thread."""
        if self._thread is not None:
            self._waiting.put(None)
            self._thread.join()
        elif self._inline_on is not None:
            self._waiting.put(None)
            self._main()

    def _main(self) -> None:
        closing = False
        while not closing:
            if self._inline_on is not None and self._waiting.empty():
                return
            batches = [self._waiting.get()]
            try:
                while True:
                    batches.append(self._waiting.get_nowait())
            except Empty:
                pass
            closing = None in batches
            error = None
            try:
                if self._file is None:
                    # SQLite has no lock on the log itself: closing this file drops none, as it would on the database.
                    self._file = os.open(self._wal_path, os.O_RDONLY | os.O_CLOEXEC)
                fsync_file(self._file)
            except OSError as failure:
                error = failure
            self._on_synced([result for batch in batches if batch is not None for result in batch], error)
        if self._file is not None:
            os.close(self._file)
            self._file = None
