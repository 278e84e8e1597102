"""Schedules: a rule in time, the task it enqueues, and the record of its fires.

Values only; `schedules/` computes the fire times of a rule. Times are integer microseconds UTC by the store's clock.

    fire time (nominal)  --planner-->  fire (a row, unique for ever)  -->  job (due_at = the fire time)
                                    \\-> skipped range (a row with its reason)
"""

from enum import StrEnum

import msgspec

from drumbeat.ids import InstanceId, JobId


class RuleKind(StrEnum):
    CRON = "cron"  # rule: the expression as written
    GRID = "grid"  # rule: microseconds between two fires, counted from the epoch or from `start`
    AFTER = "after"  # rule: microseconds from the end of one run to the next


class CatchUp(StrEnum):
    """What to do about fire times that passed while no controller ran."""

    LATEST = "latest"  # the last one is fired, the others are skipped
    NONE = "none"
    ALL = "all"  # each is fired, at most catch_up_limit of them


class Overlap(StrEnum):
    """What to do about a fire while the job of the previous fire is live (pending, running, or about to be retried)."""

    SKIP = "skip"
    QUEUE = "queue"  # its job waits until the previous one has ended
    ALLOW = "allow"
    CANCEL = "cancel"  # the previous job is cancelled; the new one starts when it has ended


class ScheduleState(StrEnum):
    ACTIVE = "active"
    PAUSED = "paused"
    RETIRED = "retired"  # deleted, or no longer declared by the code it came from; its name keeps its cursor for ever


class Origin(StrEnum):
    CODE = "code"  # declared by a decorator; synchronised at start
    STORE = "store"  # made at run time


class NewSchedule(msgspec.Struct, frozen=True, kw_only=True):
    """The definition of a schedule."""

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
    """Microseconds; a fire time that is older is skipped, whatever catch_up says."""
    overlap: Overlap = Overlap.SKIP
    jitter: int = 0
    """Microseconds; jobs are due up to this much after their fire time, always the same for the same fire time."""
    start: int | None = None
    end: int | None = None
    """No fire lies before `start`, none at or after `end`."""
    origin: Origin = Origin.STORE
    app: str = ""
    version: str = ""
    expires: int | None = None
    """Microseconds after its fire time by which a job must have started; None: no limit."""
    group: str = ""
    lane: str = ""
    """Of its jobs, as in NewJob."""


class Schedule(msgspec.Struct, frozen=True, kw_only=True):
    """A stored schedule."""

    definition: NewSchedule
    state: ScheduleState
    revision: int
    """Grows by one with each change of the definition or the state, not with fires."""
    cursor: int | None
    """The last fire time that was fired or skipped; None: none yet."""
    next_at: int | None
    """The next fire time; None: there is none, it is not active, or (AFTER) its job has not ended yet."""
    current: JobId | None
    """The job that counts for overlap and, with AFTER, whose end sets the next fire time."""
    created_at: int
    changed_at: int
    declared_at: int | None
    """When a running instance last declared it in code."""
    changed_by: str = ""
    reason: str = ""

    @property
    def name(self) -> str:
        return self.definition.name


class SkippedRange(msgspec.Struct, frozen=True, kw_only=True):
    """A range of fire times that are not fired, recorded in one row."""

    first: int
    last: int
    count: int
    reason: str
    """late, caught up, overlap, paused or limit."""


class ScheduleChange(msgspec.Struct, frozen=True, kw_only=True):
    """Pause, resume or retire a schedule that still has this revision."""

    name: str
    revision: int
    state: ScheduleState
    cursor: int | None
    """None: the schedule keeps the one it has."""
    next_at: int | None = None
    by: str
    reason: str
    skipped: "SkippedRange | None" = None
    """Fires that the change skips; recorded with it."""


class PlannedFire(msgspec.Struct, frozen=True, kw_only=True):
    """One fire: its nominal time, when its job is due (with jitter), and the id of that job."""

    at: int
    run_at: int
    job: JobId


class FireRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What a controller asks for one schedule, in one atomic step."""

    name: str
    revision: int
    expected_cursor: int | None
    """Refused unless revision and cursor are still these: then another controller was faster."""
    fires: tuple[PlannedFire, ...] = ()
    skipped: tuple[SkippedRange, ...] = ()
    advances: bool = True
    """False (backfill): cursor and next_at stay, and expected_cursor is not checked."""
    cursor: int | None = None
    next_at: int | None = None


class FireResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a FireRequest."""

    name: str
    applied: bool
    """False: refused, nothing was changed."""
    jobs: tuple[JobId, ...] = ()
    """The jobs that were enqueued, at once or behind the previous one."""
    skipped: int = 0
    """How many fire times were not fired: known already, or by overlap."""


class DueSchedules(msgspec.Struct, frozen=True, kw_only=True):
    """The schedules that are due, and when to ask again."""

    now: int
    schedules: list[Schedule]
    """Active, next_at <= now, the oldest first."""
    next_at: int | None
    """The first next_at after now."""
    min_interval: int | None
    """The shortest AFTER rule of an active schedule whose job is live: its next fire time may be set at any time."""


class FireOutcome(StrEnum):
    FIRED = "fired"
    QUEUED = "queued"  # overlap="queue" or "cancel": its job waits for the end of the previous one
    SKIPPED = "skipped"


class OnceState(StrEnum):
    """The answer to an instance that asks to do something once for all instances."""

    YOURS = "yours"  # not done, and no living instance is doing it: do it, then call complete_once
    BUSY = "busy"  # a living instance is doing it
    DONE = "done"


def once_state(holder: InstanceId | None, instance: InstanceId, *, is_done: bool) -> OnceState:
    """The answer to `instance`, where `holder` is the living instance that does it."""
    if is_done:
        return OnceState.DONE
    return OnceState.YOURS if holder == instance else OnceState.BUSY


class Fire(msgspec.Struct, frozen=True, array_like=True):
    """The record of a fire time, or of a range of skipped ones; the order of fields is the order of columns."""

    schedule: str
    at: int
    last: int
    """The end of a skipped range; equal to `at` otherwise."""
    count: int
    outcome: FireOutcome
    reason: str
    job: JobId | None
    recorded_at: int


def blocked_on_schedule(name: str) -> str:
    """blocked_on of a job that is queued behind the previous one, whose end unblocks it."""
    return f"schedule:{name}"


def parse_blocking_schedule(blocked_on: str | None) -> str | None:
    """The schedule that a job waits for, if it waits for one."""
    kind, _, name = (blocked_on or "").partition(":")
    return name if kind == "schedule" else None
