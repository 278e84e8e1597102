"""New jobs as rows of COPY in PostgreSQL's binary format, written column by column.

Values that all jobs of a batch share, which is nearly everything but ids and arguments, are encoded once, and rows are joined
from such pieces: a third of the time that the driver takes to encode each value of each row.
"""

import struct
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from itertools import chain, repeat
from operator import attrgetter
from typing import Any

from drumbeat.core.job import NewJob
from drumbeat.core.job_fields import GIVEN_FIELDS
from drumbeat.errors import StoreError
from drumbeat.ids import JobId
from drumbeat.store.postgres.statements import COLUMN_TYPES

Encode = Callable[[Any], bytes]
_ROWS_PER_CHUNK = 1_000
"""Rows that are encoded before they are sent: the server stores them while the next are encoded."""
_HEADER = b"PGCOPY\n\xff\r\n\0" + struct.pack(">ii", 0, 0)
_TRAILER = struct.pack(">h", -1)
_NULL = struct.pack(">i", -1)
_LENGTHS = [struct.pack(">i", length) for length in range(1024)]
_length = struct.Struct(">i").pack


def _text(value: str | None) -> bytes:
    if value is None:
        return _NULL
    raw = value.encode()
    return _length(len(raw)) + raw


def _integer(code: str) -> Encode:
    """Encodes integers of one size, by its letter in `struct`."""
    pack, size = struct.Struct(f">i{code}").pack, struct.calcsize(f">{code}")
    return lambda value: _NULL if value is None else pack(size, value)


_big = _integer("q")
_BY_TYPE: dict[str, Encode] = {"text": _text, "smallint": _integer("h"), "integer": _integer("i"), "bigint": _big}
_VARYING = ("id", "args", "key")
_ENCODERS = {name: _BY_TYPE[COLUMN_TYPES[name]] for name in GIVEN_FIELDS if name not in _VARYING}
_FIELD_NAMES = (*_ENCODERS, "run_at", "delay", "expires_at", "expires")
_get_fields = attrgetter(*_FIELD_NAMES)
COLUMNS: tuple[str, ...] = (*_VARYING, *_ENCODERS, "created_at", "due_at", "run_at", "expires_at")
_FIELD_COUNT = struct.pack(">h", len(COLUMNS))
_ID_LENGTH = _length(16)


class CopyBatch:
    """Jobs that are copied together, and the values that they share."""

    def __init__(self, jobs: Sequence[NewJob]) -> None:
        self._jobs = jobs
        self.ids: list[JobId] = [job.id for job in jobs]
        others = list(map(_get_fields, jobs))
        columns: Iterable[tuple[Any, ...]] = zip(others[0])
        if others.count(others[0]) < len(others):
            columns = (each[:1] if each.count(each[0]) == len(each) else each for each in zip(*others, strict=True))
        self._columns = dict(zip(_FIELD_NAMES, columns, strict=True))
        """One value where all jobs share it."""

    def column(self, name: str) -> tuple[Any, ...]:
        """All values of a column; a single one stands for all."""
        return self._columns[name]

    def earliest_due(self, now: int) -> int:
        """The earliest due time."""
        return min(self._due_times(now))

    async def encode(self, now: int) -> AsyncIterator[bytes]:
        """The whole input of COPY.

        Raises:
            StoreError: a value does not fit its column.
        """
        count = len(self._jobs)
        try:
            yield _HEADER
            shared = [list(map(write, self._columns[name])) for name, write in _ENCODERS.items()]
            shared += [
                [_big(now)],
                *[list(map(_big, self._due_times(now)))] * 2,
                list(map(_big, self._expiry_times(now))),
            ]
            for start in range(0, count, _ROWS_PER_CHUNK):
                yield b"".join(chain.from_iterable(self._encode_rows(slice(start, start + _ROWS_PER_CHUNK), shared)))
            yield _TRAILER
        except (ValueError, struct.error) as error:
            raise StoreError(f"a value of one of {count} jobs cannot be stored: {error}") from error

    def _due_times(self, now: int) -> tuple[int, ...]:
        found = self._zip_columns(self._columns["run_at"], self._columns["delay"])
        return tuple(now + delay if run_at is None else run_at for run_at, delay in found)

    def _expiry_times(self, now: int) -> tuple[int | None, ...]:
        found = self._zip_columns(self._columns["expires_at"], self._columns["expires"], self._due_times(now))
        return tuple(due + expires if at is None and expires is not None else at for at, expires, due in found)

    def _zip_columns(self, *columns: tuple[Any, ...]) -> Iterable[tuple[Any, ...]]:
        """Their values job by job; once if all jobs share them."""
        size = max(map(len, columns))
        return zip(*(column * size if len(column) == 1 else column for column in columns), strict=True)

    def _encode_rows(self, part: slice, shared: Sequence[list[bytes]]) -> Iterator[tuple[bytes, ...]]:
        jobs = self._jobs[part]
        pieces: list[Iterable[bytes]] = [repeat(_FIELD_COUNT + _ID_LENGTH), _pack_ids(self.ids[part])]
        args = [job.args.encode() for job in jobs]
        pieces += [_length_prefixes(args), args]
        keys = [job.key for job in jobs]
        constant = b""
        if keys.count(None) == len(keys):
            constant = _NULL
        else:
            pieces.append(list(map(_text, keys)))
        for column in shared:
            if len(column) == 1:
                constant += column[0]
                continue
            pieces += [repeat(constant), column[part]]
            constant = b""
        return zip(*pieces, repeat(constant))


def _length_prefixes(values: Sequence[bytes]) -> list[bytes]:
    lengths = list(map(len, values))
    return list(map(_LENGTHS.__getitem__, lengths)) if max(lengths) < len(_LENGTHS) else list(map(_length, lengths))


def _pack_ids(ids: Sequence[JobId]) -> list[bytes]:
    """The 16 bytes of each."""
    joined, count = "".join(ids), len(ids)
    # One check for all ids together: whether the dashes are where those of a UUID are.
    if set(map(len, ids)) != {36} or any(joined[place::36] != "-" * count for place in (8, 13, 18, 23)):
        raise ValueError("an id is no UUID")
    raw = bytes.fromhex(joined.replace("-", ""))
    if len(raw) != 16 * count:
        raise ValueError("an id is no UUID")
    return [raw[place : place + 16] for place in range(0, len(raw), 16)]
