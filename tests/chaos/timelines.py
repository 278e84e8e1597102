"""What happened to each run that a kill has ended, from the kill to the next start of its job.

The journal knows when a process was killed and when a handler began. The store's attempts know the rest: when the instance
was declared dead (the end of the lost attempt), when the job was claimed again (a token is the store's time of its claim), and
how often it was put off since then.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence

import msgspec

from drumbeat.core.job import Attempt, OutcomeKind
from drumbeat.ids import JobId
from drumbeat.store.protocol import Store
from tests.chaos.journal import Entry

PAGE = 500
WORKER, SUPERVISED, CHILD = "worker", "supervised worker", "child"
LOST = (OutcomeKind.CRASHED, OutcomeKind.RELEASED)


class Timeline(msgspec.Struct, frozen=True, kw_only=True):
    """Times are seconds of the machine's monotonic clock; None: unknown."""

    job: str
    task: str
    kind: str
    """What was killed: a worker, a supervised worker, or a child of one."""
    killed_at: float
    noticed_at: float | None
    """The instance was declared dead; or its worker, which lives, saw the child's end."""
    claimed_at: float | None
    last_claimed_at: float | None
    """The claim whose run began: later than `claimed_at` if the job was put off, or lost again."""
    started_at: float
    put_off: int
    """How often a claim ended without a run, because no child was free."""
    lost_again: int
    """How often another fault took the job before its handler began."""

    @property
    def seconds(self) -> float:
        return self.started_at - self.killed_at


class WallClock:
    """The store's clock, which the nemesis may have stepped, as the machine's monotonic one."""

    def __init__(self, entries: Sequence[Entry]) -> None:
        steps = [(entry.at, float(entry.facts["seconds"])) for entry in entries if entry.event == "stepped"]
        first = next((entry for entry in entries if entry.event == "clock"), None)
        self._offset = None if first is None else float(first.facts["wall"]) - first.at
        self._spans = [(0.0, 0.0)]
        for at, seconds in steps:
            self._spans.append((at, self._spans[-1][1] + seconds))

    def to_monotonic(self, wall: float, after: float) -> float | None:
        """The first time from `after` on at which the clock showed this."""
        if self._offset is None:
            return None
        ends = [*(start for start, _ in self._spans[1:]), float("inf")]
        for (start, steps), end in zip(self._spans, ends, strict=True):
            at = wall - self._offset - steps
            if start <= at < end and at >= after:
                return at
        return None


async def read_timelines(store: Store, entries: Sequence[Entry]) -> list[Timeline]:
    lost = list(find_lost_runs(entries))
    ids = sorted({run.facts["job"] for run, _ in lost})
    attempts: dict[str, Sequence[Attempt]] = {}
    for first in range(0, len(ids), PAGE):
        found = await store.inspect.get_attempts([JobId(id) for id in ids[first : first + PAGE]])
        attempts |= {str(id): each for id, each in found.items()}
    starts: dict[str, list[Entry]] = defaultdict(list)
    for entry in entries:
        if entry.event == "started":
            starts[entry.facts["job"]].append(entry)
    clock = WallClock(entries)
    timelines = []
    for run, kill in lost:
        again = next((start for start in starts[run.facts["job"]] if start.at > kill.at), None)
        if again is not None:
            timelines.append(trace(run, kill, again, attempts.get(run.facts["job"], ()), clock))
    # What has no such time was over before: its child had been killed for its time-out, say.
    return [each for each in timelines if each.noticed_at is not None]


def find_lost_runs(entries: Sequence[Entry]) -> Iterator[tuple[Entry, Entry]]:
    """Each run that did not end, and the kill of its process."""
    ended = {entry.facts["run"] for entry in entries if entry.event == "ended"}
    by_process: dict[int, list[Entry]] = defaultdict(list)
    for entry in entries:
        if entry.event == "started" and entry.facts["run"] not in ended:
            for pid in {entry.pid, entry.parent}:
                by_process[pid].append(entry)
        elif entry.event == "killed":
            runs = {run.facts["run"]: run for pid in entry.facts["pids"] for run in by_process.pop(pid, ())}
            for run in runs.values():
                yield run, entry


def trace(run: Entry, kill: Entry, again: Entry, attempts: Sequence[Attempt], clock: WallClock) -> Timeline:
    lost, last = run.facts["token"], again.facts["token"]
    ends = [attempt for attempt in attempts if attempt.token == lost]
    between = [attempt for attempt in attempts if lost < attempt.token < last]
    noticed = clock.to_monotonic(ends[0].finished_at.timestamp(), kill.at - 0.05) if ends else None
    first = min((attempt.token for attempt in between), default=last)
    return Timeline(
        job=run.facts["job"],
        task=run.facts["task"],
        kind=kill.facts["what"],
        killed_at=kill.at,
        noticed_at=noticed,
        claimed_at=clock.to_monotonic(first / 1e6, kill.at),
        last_claimed_at=clock.to_monotonic(last / 1e6, kill.at),
        started_at=again.at,
        put_off=sum(attempt.outcome is OutcomeKind.SNOOZED for attempt in between),
        lost_again=sum(attempt.outcome in LOST for attempt in between),
    )
