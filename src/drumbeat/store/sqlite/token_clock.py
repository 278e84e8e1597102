"""Tokens of claims and locks that only grow, also if the power is cut and the clock is behind afterwards.

Claims and grants of locks do not wait for the disk: a power cut ends whoever holds them. But it may also make the store forget
their numbers, and a clock that is behind would give them again, to whom a resource that has seen them refuses. So numbers are
reserved in advance, and the reservation is on disk before the first of them is given:

    floor      no number up to this one is given: what was reserved when the machine was started last
    ceiling    what is reserved; renewed when half of it is left
"""

import hashlib

from drumbeat.store.sqlfile import Statements
from drumbeat.store.sqlite.boot import boot_id
from drumbeat.store.sqlite.connection import SqliteConnection

BOOT, FLOOR, CEILING = "token_boot", "token_floor", "token_ceiling"
RESERVED_US = 600_000_000
MIN_LEFT_US = RESERVED_US // 2
"""Where the clock has been stepped back, the next number is the last one plus one: so many more may be given."""


class TokenClock:
    """On the writer's thread, inside the write lock."""

    def __init__(self, sql: Statements) -> None:
        self._sql = sql
        self._boot = _to_number(boot_id())
        self._floor = 0
        self._ceiling = 0

    def is_reserved(self, now: int) -> bool:
        """Whether numbers may be given at this time."""
        return self.lowest(now) + MIN_LEFT_US < self._ceiling

    def lowest(self, now: int) -> int:
        """The lowest number that may be given at this time."""
        return max(now, self._floor + 1)

    def reserve(self, db: SqliteConnection, now: int) -> "tuple[int, int]":
        """Write a reservation, in the transaction of this connection. `accept` it when it is on disk."""
        boot, floor, ceiling = (self._read(db, name) for name in (BOOT, FLOOR, CEILING))
        if boot != self._boot:
            floor = ceiling
        ceiling = max(ceiling, max(now, floor + 1) + RESERVED_US)
        for name, value in ((BOOT, self._boot), (FLOOR, floor), (CEILING, ceiling)):
            db.run(self._sql.set_meta, {"name": name, "value": value})
        return floor, ceiling

    def _read(self, db: SqliteConnection, name: str) -> int:
        found = db.value(self._sql.get_meta, {"name": name})
        return found if type(found) is int else 0

    def accept(self, reservation: "tuple[int, int]") -> None:
        self._floor, self._ceiling = reservation


def _to_number(boot: str) -> int:
    """What the column of numbers can hold, and never 0."""
    return int.from_bytes(hashlib.sha256(boot.encode()).digest()[:7], "big") | 1
