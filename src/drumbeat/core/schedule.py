"""What a schedule is: a rule in time, what it calls, and the record of each of its moments.

Values only; which moments a rule has is the business of `schedules/`. Times are integer microseconds UTC by the store's clock;
`Schedule` and `Fire`, which people see, have datetimes where they are shown, not here.

    moment (nominal)  --planner-->  fire (a row, unique for ever)  -->  job (due_at = the moment)
                                 \\-> skipped stretch (a row with its reason)
"""

from enum import StrEnum

import msgspec

from drumbeat.ids import JobId


class RuleKind(StrEnum):
    CRON = "cron"  # rule: the expression as written
    GRID = "grid"  # rule: microseconds between two moments, counted from the epoch or from `start`
    AFTER = "after"  # rule: microseconds from the end of one run to the next


class CatchUp(StrEnum):
    """What becomes of moments that nobody was there for."""

    LATEST = "latest"  # the last one is fired, the others are skipped
    NONE = "none"
    ALL = "all"  # each is fired, at most catch_up_limit of them


class Overlap(StrEnum):
    """What becomes of a fire while the job of the one before is live (pending, running, or waiting for its retry)."""

    SKIP = "skip"
    QUEUE = "queue"  # its job waits until the one before has ended
    ALLOW = "allow"
    CANCEL = "cancel"  # the one before is cancelled; the new one starts when it has ended


class ScheduleState(StrEnum):
    ACTIVE = "active"
    PAUSED = "paused"
    RETIRED = "retired"  # deleted, or no longer declared by the code it came from; its name keeps its cursor for ever


class Origin(StrEnum):
    CODE = "code"  # declared by a decorator; synchronised at start
    STORE = "store"  # made at run time


class NewSchedule(msgspec.Struct, frozen=True, kw_only=True):
    """A definition: everything that somebody may write down about a schedule."""

    name: str
    task: str
    kind: RuleKind
    rule: str
    queue: str
    args: str
    """JSON object text, parameter by parameter, as in NewJob."""
    signature: str
    tz: str = "UTC"
    priority: int = 5
    retries: int | None = None
    timeout: int | None = None
    crash_limit: int = 3
    on_dead: str | None = None
    catch_up: CatchUp = CatchUp.LATEST
    catch_up_limit: int = 100
    max_late: int | None = None
    """Microseconds; a moment that is older is skipped, whatever catch_up says."""
    overlap: Overlap = Overlap.SKIP
    jitter: int = 0
    """Microseconds; each moment's job is due up to so much later, always by the same amount for the same moment."""
    start: int | None = None
    end: int | None = None
    """No moment lies before `start`, none at or after `end`."""
    origin: Origin = Origin.STORE
    app: str = ""
    version: str = ""


class Schedule(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule as the store has it."""

    definition: NewSchedule
    state: ScheduleState
    revision: int
    """Grows by one with each change of the definition or the state; firing does not touch it."""
    cursor: int | None
    """The last moment that was dealt with, fired or skipped; None: none yet."""
    next_at: int | None
    """The next moment; None: it has none, it is not active, or (AFTER) its job has not ended yet."""
    current: JobId | None
    """The job of the fire that counts for overlap and, with AFTER, for the next moment."""
    created_at: int
    changed_at: int
    declared_at: int | None
    """When a running instance last said that its code declares it."""
    changed_by: str = ""
    reason: str = ""

    @property
    def name(self) -> str:
        return self.definition.name


class SkippedRange(msgspec.Struct, frozen=True, kw_only=True):
    """A stretch of moments that are not fired; one row however many they are."""

    first: int
    last: int
    count: int
    reason: str
    """late, caught up, overlap, paused, limit: a short word that people read."""


class ScheduleChange(msgspec.Struct, frozen=True, kw_only=True):
    """Pause, resume or retire a schedule that still has this revision."""

    name: str
    revision: int
    state: ScheduleState
    cursor: int | None
    """None: the schedule keeps the one it has."""
    next_at: int | None
    by: str
    reason: str
    skipped: "SkippedRange | None" = None
    """Fires that the change skips; recorded with it."""


class PlannedFire(msgspec.Struct, frozen=True, kw_only=True):
    """One fire to be: its nominal moment, when its job is due (with jitter), and the id of that job."""

    at: int
    run_at: int
    job: JobId


class FireRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What a controller wants done about one schedule, in one atomic step."""

    name: str
    revision: int
    expected_cursor: int | None
    """Refused unless revision and cursor are still these: then somebody else has done it."""
    fires: tuple[PlannedFire, ...] = ()
    skipped: tuple[SkippedRange, ...] = ()
    advances: bool = True
    """False (backfill): cursor and next_at stay, and cursor_before is not looked at."""
    cursor: int | None = None
    next_at: int | None = None


class FireResult(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a Firing."""

    name: str
    applied: bool
    """False: refused, nothing was changed."""
    jobs: tuple[JobId, ...] = ()
    """Those that were enqueued, now or behind the one before."""
    skipped: int = 0
    """Moments that were not fired: known already, or by overlap."""


class DueSchedules(msgspec.Struct, frozen=True, kw_only=True):
    """What a controller finds when it looks."""

    now: int
    schedules: list[Schedule]
    """Active, next_at <= now, the oldest first."""
    next_at: int | None
    """The first next_at after now."""
    min_interval: int | None
    """The shortest AFTER rule of an active schedule whose job is under way: its next moment may be set at any time."""


class FireOutcome(StrEnum):
    FIRED = "fired"
    QUEUED = "queued"  # overlap="queue" or "cancel": its job waits for the end of the one before
    SKIPPED = "skipped"


class OnceState(StrEnum):
    """What an instance that wants something done once for all instances hears."""

    YOURS = "yours"  # nobody has done it, and nobody who lives is at it: do it, then say once_done
    BUSY = "busy"  # a living instance is at it
    DONE = "done"


class Fire(msgspec.Struct, frozen=True, kw_only=True):
    """The record of a moment, or of a skipped stretch of them."""

    schedule: str
    at: int
    last: int
    """The end of a skipped stretch; equal to `at` otherwise."""
    count: int
    outcome: FireOutcome
    reason: str
    job: JobId | None
    recorded_at: int


def blocked_on_schedule(name: str) -> str:
    """blocked_on of a job that is queued behind the one before; the end of that one sets it free."""
    return f"schedule:{name}"


def parse_blocking_schedule(blocked_on: str | None) -> str | None:
    """The name in it, if it is of this kind."""
    return (
        None if blocked_on is None or not blocked_on.startswith("schedule:") else blocked_on.removeprefix("schedule:")
    )
