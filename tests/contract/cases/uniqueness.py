"""Every meeting of a job with the holders of its unique key."""

from typing import NamedTuple

from drumbeat.core.job import OutcomeKind, Unique
from tests.contract.cases import all_of


class Flag(NamedTuple):
    has_key: bool
    unique: Unique


FLAGS = (Flag(False, Unique.NO), Flag(True, Unique.NO), Flag(True, Unique.LIVE), Flag(True, Unique.PENDING))

HOLDER_STATES: dict[str, OutcomeKind | None] = {
    "new": None,  # added in the same call, just before
    "pending": None,
    "running": None,
    "blocked": OutcomeKind.BLOCKED,
    "succeeded": OutcomeKind.SUCCEEDED,
    "dead": OutcomeKind.DEAD,
}
"""What a holder is when the job comes, and the outcome that makes it so."""


class UniqueCase(NamedTuple):
    way: str
    """add: a new job; replay: a dead letter; return: a running job becomes pending."""
    flag: Flag
    holder: Flag | None
    holder_state: str
    second: str
    """A second job of Unique.PENDING holds the key beside one that runs: its id is "smaller" or "larger"; "": there is none."""


def _is_possible(case: UniqueCase) -> bool:
    if case.holder is None:
        return case.holder_state == "pending" and not case.second
    if case.second:
        return case.holder == FLAGS[3] and case.holder_state == "running" and case.way != "return"
    return case.holder_state != "new" or case.way == "add"


UNIQUE_CASES = [
    case
    for values in all_of(("add", "replay", "return"), FLAGS, (None, *FLAGS), HOLDER_STATES, ("", "smaller", "larger"))
    if _is_possible(case := UniqueCase(*values))
]
