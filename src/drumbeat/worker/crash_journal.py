"""What a worker process has started, in memory that it shares with its supervisor.

When a process dies, nobody can ask it which of its jobs were running: those may have killed it, the others are innocent.
So the worker marks what it starts in a mapped file, which outlives it, and its supervisor reads it after the death.

    header, 64 bytes      magic, slots, width, the instance's id, the length of that id
    each slot             token, id of the first job, count; then width - 1 times token, id

The count (or the length) is written last and cleared first. A process is killed between two instructions, so what a
count says is there is complete, wherever the worker died. Only one thread writes a slot, and nobody reads it while the
worker lives. Nothing here is a promise about the jobs: the store is the only authority.
"""

import mmap
import os
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol, Self

from drumbeat.core.claim import ClaimRef
from drumbeat.ids import InstanceId, JobId

MAGIC = b"drumbeat marks 1"
_HEADER = struct.Struct("<16sII")  # magic, slots, width
_INSTANCE = struct.Struct("<36sI")  # id, its length
_INSTANCE_AT = _HEADER.size
_SLOTS_AT = 64
_FIRST = struct.Struct("<q36sI")  # token, id, count: in this order, so that the count is written last
_NEXT = struct.Struct("<q36s")
_COUNT_AT = 44
_ZERO = bytes(4)


class JournalEntry(Protocol):
    """A claimed job, as far as it is marked."""

    @property
    def id(self) -> JobId: ...

    @property
    def token(self) -> int: ...


class CrashJournal:
    """The marks of one worker process: written by it, read by its supervisor after its death."""

    def __init__(self, memory: mmap.mmap, slots: int, width: int) -> None:
        self._memory = memory
        self._width = width
        size = _slot_size(width)
        self._starts = [_SLOTS_AT + number * size for number in range(slots)]

    @classmethod
    def create(cls, path: str | os.PathLike[str], slots: int, width: int) -> Self:
        """A new file, there only when it is complete. `width`: the most jobs that one slot runs at once."""
        width = max(1, width)
        size = _SLOTS_AT + slots * _slot_size(width)
        draft = f"{os.fspath(path)}.new"
        descriptor = os.open(draft, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            _reserve(descriptor, size)
            memory = mmap.mmap(descriptor, size)
        finally:
            os.close(descriptor)
        _HEADER.pack_into(memory, 0, MAGIC, slots, width)
        os.rename(draft, path)
        return cls(memory, slots, width)

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Self | None:
        """The marks in this file; None when a worker died before it had made them."""
        try:
            with Path(path).open("r+b") as file:
                memory = mmap.mmap(file.fileno(), 0)
        except (FileNotFoundError, ValueError):
            return None
        if len(memory) < _SLOTS_AT:
            return None
        magic, slots, width = _HEADER.unpack_from(memory, 0)
        if magic != MAGIC or len(memory) < _SLOTS_AT + slots * _slot_size(width):
            return None
        return cls(memory, slots, width)

    def set_instance(self, instance: InstanceId) -> None:
        """Say whose marks these are; called before the instance is registered."""
        id = instance.encode()
        _INSTANCE.pack_into(self._memory, _INSTANCE_AT, id, len(id))

    def record_start(self, slot: int, holds: Sequence[JournalEntry]) -> None:
        """Mark these jobs as started, before the first of them runs. The slot has been cleared since its last start."""
        start = self._starts[slot]
        first = holds[0]
        if len(holds) > 1:
            offset = start + _FIRST.size
            for hold in holds[1:]:
                _NEXT.pack_into(self._memory, offset, hold.token, hold.id.encode())
                offset += _NEXT.size
        _FIRST.pack_into(self._memory, start, first.token, first.id.encode(), len(holds))

    def clear(self, slot: int) -> None:
        """Nothing runs in this slot any more."""
        offset = self._starts[slot] + _COUNT_AT
        self._memory[offset : offset + 4] = _ZERO

    def read(self) -> tuple[InstanceId | None, list[ClaimRef]]:
        """Whose marks these are, None if it never said so, and what it had started."""
        id, length = _INSTANCE.unpack_from(self._memory, _INSTANCE_AT)
        instance = InstanceId(id[:length].decode("ascii", "replace")) if length else None
        holds: list[ClaimRef] = []
        for start in self._starts:
            token, job, count = _FIRST.unpack_from(self._memory, start)
            if not count:
                continue
            holds.append(_hold(job, token))
            for number in range(min(count, self._width) - 1):
                token, job = _NEXT.unpack_from(self._memory, start + _FIRST.size + number * _NEXT.size)
                holds.append(_hold(job, token))
        return instance, holds

    def close(self) -> None:
        self._memory.close()


class NullCrashJournal:
    """For a worker that nobody supervises."""

    def set_instance(self, instance: InstanceId) -> None:
        pass

    def record_start(self, slot: int, holds: Sequence[JournalEntry]) -> None:
        pass

    def clear(self, slot: int) -> None:
        pass

    def read(self) -> tuple[InstanceId | None, list[ClaimRef]]:
        return None, []

    def close(self) -> None:
        pass


def _slot_size(width: int) -> int:
    return _FIRST.size + (width - 1) * _NEXT.size


def _hold(job: bytes, token: int) -> ClaimRef:
    return ClaimRef(JobId(job.rstrip(b"\0").decode("ascii", "replace")), token)


def _reserve(descriptor: int, size: int) -> None:
    """Take the space now: a write to a mapped page that a full disk cannot give would kill the process by SIGBUS."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(descriptor, 0, size)
    else:
        os.write(descriptor, bytes(size))
