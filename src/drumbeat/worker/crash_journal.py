"""The jobs that a worker process has started, in a mapped file that its supervisor reads after a crash.

A running job may have killed its process; jobs that were only claimed have not. So the worker records each start in a mapped
file, which outlives it.

    header, 64 bytes      magic, slots, width, the instance's id, the length of that id
    each slot             token, id of the first job, count; then width - 1 times token, id

The count (or the length) is written last and cleared first. A process is killed between two instructions, so the entries that a
count announces are complete, wherever the worker died. Only one thread writes a slot, and it is read only after the worker's
death. The journal guarantees nothing about the jobs: the store is the only authority.
"""

import mmap
import os
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from drumbeat.core.claim import ClaimedJob, ClaimRef
from drumbeat.ids import InstanceId, JobId

MAGIC = b"drumbeat journal"
_HEADER = struct.Struct("<16sII")  # magic, slots, width
_INSTANCE = struct.Struct("<36sI")  # id, its length
_INSTANCE_AT = _HEADER.size
_SLOTS_AT = 64
_FIRST = struct.Struct("<q36sI")  # token, id, count: in this order, so that the count is written last
_NEXT = struct.Struct("<q36s")
_COUNT_AT = 44
_ZERO = bytes(4)


class CrashJournal:
    """Written by one worker process, read by its supervisor after its death."""

    def __init__(self, memory: mmap.mmap, slots: int, width: int) -> None:
        self._memory = memory
        self._width = width
        size = _slot_size(width)
        self._starts = [_SLOTS_AT + number * size for number in range(slots)]

    @classmethod
    def create(cls, path: str | os.PathLike[str], slots: int, width: int) -> Self:
        """Create the file, atomically. `width`: the maximum number of jobs that one slot runs at once."""
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
        """Open an existing file; None if the worker died before it was complete."""
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
        id = instance.encode()
        _INSTANCE.pack_into(self._memory, _INSTANCE_AT, id, len(id))

    def record_start(self, slot: int, jobs: Sequence[ClaimedJob | ClaimRef]) -> None:
        """Record that these jobs start, before the first of them runs. The slot was cleared since its last start."""
        start = self._starts[slot]
        first = jobs[0]
        if len(jobs) > 1:
            offset = start + _FIRST.size
            for job in jobs[1:]:
                _NEXT.pack_into(self._memory, offset, job.token, job.id.encode())
                offset += _NEXT.size
        _FIRST.pack_into(self._memory, start, first.token, first.id.encode(), len(jobs))

    def clear(self, slot: int) -> None:
        """The slot is idle again."""
        offset = self._starts[slot] + _COUNT_AT
        self._memory[offset : offset + 4] = _ZERO

    def read(self) -> tuple[InstanceId | None, list[ClaimRef]]:
        """The instance id, if it was recorded, and the jobs that were running."""
        id, length = _INSTANCE.unpack_from(self._memory, _INSTANCE_AT)
        instance = InstanceId(id[:length].decode("ascii", "replace")) if length else None
        claims: list[ClaimRef] = []
        for start in self._starts:
            token, job, count = _FIRST.unpack_from(self._memory, start)
            if not count:
                continue
            claims.append(_to_claim(job, token))
            for number in range(min(count, self._width) - 1):
                token, job = _NEXT.unpack_from(self._memory, start + _FIRST.size + number * _NEXT.size)
                claims.append(_to_claim(job, token))
        return instance, claims

    def close(self) -> None:
        self._memory.close()


class NullCrashJournal:
    """For a worker without a supervisor."""

    def set_instance(self, instance: InstanceId) -> None:
        pass

    def record_start(self, slot: int, jobs: Sequence[ClaimedJob | ClaimRef]) -> None:
        pass

    def clear(self, slot: int) -> None:
        pass

    def read(self) -> tuple[InstanceId | None, list[ClaimRef]]:
        return None, []


def _slot_size(width: int) -> int:
    return _FIRST.size + (width - 1) * _NEXT.size


def _to_claim(job: bytes, token: int) -> ClaimRef:
    return ClaimRef(JobId(job.rstrip(b"\0").decode("ascii", "replace")), token)


def _reserve(descriptor: int, size: int) -> None:
    """Allocate the space now: writing to a mapped page that a full disk cannot back would kill the process by SIGBUS."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(descriptor, 0, size)
    else:
        os.write(descriptor, bytes(size))
