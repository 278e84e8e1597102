"""Every job that an instance can leave behind when it dies."""

from typing import NamedTuple

from tests.contract.cases import all_of


class CrashCase(NamedTuple):
    started: bool | None
    """Whether the job had started; None: nobody knows which had."""
    others: int
    """How many jobs ran beside it."""
    crashes: int
    cancel_requested: bool
    on_dead: str | None


CRASH_LIMIT = 3
CRASH_CASES = [
    CrashCase(*values)
    for values in all_of((None, True, False), (0, 1, 2), range(CRASH_LIMIT), (False, True), (None, "mourn"))
]
