"""What a checker sees: what clients were told, what handlers did, what the store says at the end, and which faults there were.

Times are seconds on one clock, that of the simulation or the monotonic one of the machine. The records say nothing about how
the history came about: simulation and chaos make the same.
"""

from collections.abc import Sequence
from typing import Literal

import msgspec


class Enqueued(msgspec.Struct, frozen=True, kw_only=True):
    """A call of `enqueue`."""

    id: str
    at: float
    acknowledged: bool
    """It returned. Otherwise it raised or its process died: the job may exist or not."""
    due: float = 0.0
    batch: int | None = None
    """Calls of one number were one `enqueue_many`: all or none."""
    unique_key: str | None = None
    existing: str | None = None
    """The live job that held the unique key: this one was not added."""
    answered_at: float | None = None
    """When it returned, where that is known."""
    refusal: str | None = None
    """It raised this, and not because the store was unavailable or full."""
    timeout: float | None = None
    """The time-out of this job, which comes before that of its task."""


class Depends(msgspec.Struct, frozen=True, kw_only=True):
    """A child was to wait for a parent. It does if it exists."""

    parent: str
    child: str
    if_fails: str
    """"cancel", "run" or "wait"."""


class Started(msgspec.Struct, frozen=True, kw_only=True):
    """A handler began."""

    run: int
    """The number of this run, among all of the history."""
    job: str
    token: int
    node: str
    at: float
    process: str = ""
    """Which process of the node, where it has several."""


class StepEvent(msgspec.Struct, frozen=True, kw_only=True):
    """What a run did about its steps, sleeps and waits."""

    job: str
    token: int
    run: int
    at: float
    kind: Literal["called", "stepped", "sleeps", "slept", "waits", "got", "timed out"]
    """called: the function of a step; stepped, slept, got, timed out: the handler went on with its next line; sleeps, waits: it
    asked for that."""
    name: str
    value: str = ""
    """What the function returned, or was about to return; the payload that was got."""
    seconds: float | None = None
    """Of a sleep, or the time-out of a wait; None: it has none."""


class SignalCall(msgspec.Struct, frozen=True, kw_only=True):
    """A call that sends a signal. Each has a payload of its own; all have one name."""

    job: str
    value: str
    at: float
    answered_at: float | None = None
    """When it was told that the signal is stored; None: it was refused, or not answered."""


class SignalRead(msgspec.Struct, frozen=True, kw_only=True):
    """A signal that the store has as read, at the end."""

    job: str
    value: str
    wait: str


class Ended(msgspec.Struct, frozen=True, kw_only=True):
    """A handler returned or raised. A run without this record was killed, or still runs."""

    run: int
    at: float
    result: str | None = None
    """What it returned, as the store keeps it; None: it raised."""


class CancelAnswered(msgspec.Struct, frozen=True, kw_only=True):
    job: str
    at: float
    answer: str
    """Empty: none came, and the call may have had its effect; `at` is then when it was made. Not recorded everywhere."""


class LockHeld(msgspec.Struct, frozen=True, kw_only=True):
    """A block of `app.lock` was entered, and left."""

    lock: str
    token: int
    node: str
    asked_at: float
    entered_at: float
    left_at: float | None
    """None: it was never left (its process died)."""
    lost_at: float | None = None
    """When the block was told that the lock is lost."""
    is_exact: bool = False
    """`left_at` and `lost_at` were recorded as they happened: at every other time the holder relied on its lock."""


class TicketCall(msgspec.Struct, frozen=True, kw_only=True):
    """A call about a ticket of a lock, as the store performed it, and what it answered."""

    lock: str
    ticket: str
    node: str
    """Whose call it is."""
    call: Literal["acquire", "renew", "look", "release"]
    start: float
    end: float | None = None
    """None: there was no answer. The call may have had its effect."""
    state: str = ""
    """"waiting", "granted" or "lost"."""
    token: int = 0
    """The place in the queue: a ticket that was lost and is acquired again gets another."""
    lease: float
    limit: int = 1
    per: float | None = None


class ResourceWrite(msgspec.Struct, frozen=True, kw_only=True):
    """A resource that checks tokens was written to; `accepted` is what it said."""

    resource: str
    token: int
    at: float
    accepted: bool


class Heard(msgspec.Struct, frozen=True, kw_only=True):
    """A worker was called with a message of a room."""

    message: int
    node: str
    at: float


class Broadcast(msgspec.Struct, frozen=True, kw_only=True):
    """A message was sent to a room; `told` is the number of healthy workers that the call returned."""

    message: int
    at: float
    told: int


class Delivered(msgspec.Struct, frozen=True, kw_only=True):
    """A receiver was sent the message of a forwarded job."""

    job: str
    at: float
    taken: bool
    """It accepted the message; otherwise it refused it."""
    answered: bool
    """It said so."""


class Disturbance(msgspec.Struct, frozen=True, kw_only=True):
    """A fault, and the node that it concerns; None: all."""

    kind: str
    node: str | None
    start: float
    end: float
    call: str | None = None
    """Only such calls to the store, as "jobs.add"; None: all."""


class NodeLife(msgspec.Struct, kw_only=True):
    """A process from its start to its end. A node has one life after another."""

    node: str
    start: float
    stop_asked_at: float | None = None
    """When it was asked to stop in order (SIGTERM)."""
    end: float | None = None
    """None: it lived to the end of the history."""
    ending: Literal["", "killed", "stopped", "left"] = ""
    """"left": it ended by itself, and nobody had asked it to."""
    concurrency: int | None = None
    """How many handlers it may run at once; None: not known."""


class BeatReceived(msgspec.Struct, frozen=True, kw_only=True):
    """A heartbeat that the store accepted."""

    node: str
    at: float
    asks_to_lead: bool = True
    is_leader: bool = False
    """It leads, by the answer."""


class ClaimedRef(msgspec.Struct, frozen=True, kw_only=True):
    job: str
    token: int
    run_at: int
    """When it was due, in microseconds by the store's clock."""
    queue: str = "default"
    priority: int = 5
    lane: str = ""


class ClaimPerformed(msgspec.Struct, frozen=True, kw_only=True):
    """A claim that the store performed."""

    node: str
    start: float
    end: float | None = None
    """None: there was no answer. It may have taken jobs."""
    now: int = 0
    """By the store's clock, in microseconds."""
    jobs: tuple[ClaimedRef, ...] = ()


class CursorMove(msgspec.Struct, frozen=True, kw_only=True):
    """A step of a schedule that the store has applied."""

    schedule: str
    at: float
    before: int | None
    after: int | None
    fired: int = 0
    """How many of its fire times were given a job."""
    chosen: int = 0
    """How many were to get one: some of them may have been skipped because a job before was live."""


class SchedulePolicy(msgspec.Struct, frozen=True, kw_only=True):
    """What was declared of a schedule."""

    period: float | None = None
    """Of a grid from the epoch, in seconds."""
    overlap: str = "skip"
    catch_up: str = "latest"
    catch_up_limit: int = 100


class ClaimMade(msgspec.Struct, frozen=True, kw_only=True):
    """The store gave a job to an instance. Nodes of this and the next three records have another name after each start."""

    job: str
    token: int
    instance: str
    node: str
    at: float
    answered_at: float | None = None
    """When the answer was there; None: it was lost."""


class ReleaseSent(msgspec.Struct, frozen=True, kw_only=True):
    """A worker gave a claim back."""

    job: str
    token: int
    node: str
    at: float


class BeatSent(msgspec.Struct, frozen=True, kw_only=True):
    """A heartbeat; `answered_at` is None if it failed."""

    instance: str
    node: str
    asked_at: float
    answered_at: float | None
    is_alive: bool = True
    """What the answer said of the instance."""


class DeathDeclared(msgspec.Struct, frozen=True, kw_only=True):
    """A node had an instance declared dead; `at` is when it asked."""

    instance: str
    by: str
    at: float


class TaskLimits(msgspec.Struct, frozen=True, kw_only=True):
    """What was declared of a task."""

    per_group: int | None = None
    """How many jobs of a group may run at once."""
    whole: int | None = None
    """How many of all groups."""
    rate: int | None = None
    """How many of a group may start in any `per` seconds."""
    per: float = 0.0
    is_ordered: bool = False
    """One after the other, in the order of enqueue; a retry holds the line."""


class RateGrant(msgspec.Struct, frozen=True, kw_only=True):
    """A start under a rate, at the store's time."""

    name: str
    limit: int
    per: float
    at: float


class LeaderSeen(msgspec.Struct, frozen=True, kw_only=True):
    """A controller saw who leads in a term."""

    term: int
    leader: str
    start: float | None = None
    end: float | None = None
    """When the store was asked, and when it had answered; None: not known."""


class AttemptRecord(msgspec.Struct, frozen=True, kw_only=True):
    token: int
    outcome: str
    started: bool
    finished_at: int | None = None
    """By the store's clock, in microseconds, as the token."""


class JobRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A job as the store has it at the end."""

    id: str
    task: str
    state: str
    failures: int
    crashes: int
    replays: int = 0
    retries: int = 0
    result: str | None = None
    unique_key: str | None = None
    attempts: tuple[AttemptRecord, ...] = ()
    schedule: str | None = None
    waits_for_parents: bool = False
    error: str | None = None
    """The type of its last error."""
    group: str = ""


class FireRecord(msgspec.Struct, frozen=True, kw_only=True):
    schedule: str
    at: float
    last: float
    count: int
    outcome: str
    job: str | None
    recorded_at: float | None = None
    """By the store's clock; `at` and `last`, too."""
    reason: str = ""


class History(msgspec.Struct, kw_only=True):
    enqueued: list[Enqueued] = []
    depends: list[Depends] = []
    started: list[Started] = []
    steps: list[StepEvent] = []
    signals: list[SignalCall] = []
    signals_read: list[SignalRead] = []
    ended: list[Ended] = []
    cancels: list[CancelAnswered] = []
    locks: list[LockHeld] = []
    ticket_calls: list[TicketCall] = []
    """In the order in which the calls were made."""
    writes: list[ResourceWrite] = []
    heard: list[Heard] = []
    broadcasts: list[Broadcast] = []
    deliveries: list[Delivered] = []
    disturbances: list[Disturbance] = []
    claims: list[ClaimMade] = []
    releases: list[ReleaseSent] = []
    beats: list[BeatSent] = []
    deaths: list[DeathDeclared] = []
    dead_after: float = 0.0
    """The setting, where deaths are recorded."""
    rates: list[RateGrant] = []
    leaders: list[LeaderSeen] = []
    lives: list[NodeLife] = []
    beats_received: list[BeatReceived] = []
    claims_performed: list[ClaimPerformed] = []
    cursor_moves: list[CursorMove] = []
    jobs: Sequence[JobRecord] = ()
    fires: Sequence[FireRecord] = ()
    expected_fires: dict[str, Sequence[float]] = {}
    """For each schedule on a grid or cron: the fire times that there must be a record of."""
    policies: dict[str, SchedulePolicy] = {}
    limits: dict[str, TaskLimits] = {}
    """By task."""
    clock_slack_us: int = 0
    """By how much the recorded end of a run may be ahead of the store's clock."""
    ended_at: float = 0.0
    epoch: float | None = None
    """The store's clock when that of the history showed 0; None: it was stepped."""
    grace: float = 30.0
    """How long after a fault what it has done may still show."""
    timeouts: dict[str, float] = {}
    """The time-outs of tasks."""
    poisonous: Sequence[str] = ()
    """Tasks that kill their process."""
    interruptible: Sequence[str] = ()
    """Tasks whose handlers end at once when they hear of their cancellation."""
    heartbeat: float = 1.0
    leader_lease: float | None = None
    """None: not known, nothing is said about times without a leader."""
    max_displaced: int | None = None
    """How many younger jobs of its queue and priority may be claimed before a job: claimers x batch; None: not known."""
    forwarded: Sequence[str] = ()
    """Tasks whose jobs are sent to a receiver instead of run."""
