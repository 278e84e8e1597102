"""Nothing was lost, though the store has pruned most of it: the journal has what became of each job.

The journal of a day is read as a stream; only jobs that nothing explains yet are kept in memory.
"""

from collections.abc import Callable, Iterable
from itertools import chain

from tests.chaos.journal import Entry
from tests.proof import checkers
from tests.proof.history import Enqueued, History, JobRecord

CHECKERS = (checkers.no_loss, checkers.no_phantom, checkers.one_end, checkers.all_finish)


class JournalSummary:
    def __init__(self) -> None:
        self.acknowledged = 0
        self.ended = 0
        self.heard = 0
        self.mistakes: list[str] = []
        self.unexplained: set[str] = set()
        """Acknowledged, and neither ended nor cancelled nor discarded: must be in the store."""


def summarise(entries: Iterable[Entry]) -> JournalSummary:
    found, early = JournalSummary(), set[str]()
    for entry in entries:
        match entry.event:
            case "acknowledged":
                ids = {id for id, other in zip(entry.facts["ids"], entry.facts["existing"], strict=True) if id == other}
                found.acknowledged += len(ids)
                # A job may end before its producer has written down that it was acknowledged.
                found.unexplained |= ids - early
                early -= ids
            case "ended" | "cancels" | "discards":
                ids = set(entry.facts.get("ids", ())) or {entry.facts["job"]}
                found.ended += entry.event == "ended"
                early |= ids - found.unexplained if entry.event == "ended" else set()
                found.unexplained -= ids
            case "heard":
                found.heard += 1
            case "mistake":
                found.mistakes.append(entry.facts["error"])
    return found


def check_jobs(
    read_entries: Callable[[], Iterable[Entry]], summary: JournalSummary, jobs: Iterable[JobRecord]
) -> list[str]:
    """Violations of what is promised about jobs; `read_entries` reads the journal once more, for phantoms."""
    history = History(jobs=list(jobs))
    ids = {job.id for job in history.jobs}
    asked = {id for entry in read_entries() if entry.event == "asks" for id in entry.facts["ids"] if id in ids}
    history.enqueued = [
        Enqueued(id=id, at=0.0, acknowledged=id in summary.unexplained) for id in sorted(asked | summary.unexplained)
    ]
    return list(chain.from_iterable(checker(history) for checker in CHECKERS))
