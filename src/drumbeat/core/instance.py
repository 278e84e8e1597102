"""What an instance is: one running process of the cluster, with a random id and a heartbeat."""

from datetime import datetime
from enum import StrEnum

import msgspec

from drumbeat.core.claim import ClaimRef
from drumbeat.durations import to_us
from drumbeat.ids import InstanceId


class InstanceState(StrEnum):
    ALIVE = "alive"
    LEFT = "left"  # said goodbye
    DEAD = "dead"  # buried by somebody who saw its heart stand still; never revived


class Role(StrEnum):
    WORKER = "worker"
    CONTROLLER = "controller"


class NewInstance(msgspec.Struct, frozen=True, kw_only=True):
    id: InstanceId
    app: str
    version: str
    host: str
    pid: int
    roles: tuple[Role, ...]
    queues: tuple[str, ...]
    tasks: dict[str, str]
    """name -> signature hash of every task it knows."""
    concurrency: int
    rooms: dict[str, str] = {}
    """name -> signature hash of every room it is in."""
    wake: str | None = None
    """Where a hint reaches it (SQLite: the path of its datagram socket)."""


class Peer(msgspec.Struct, frozen=True, array_like=True):
    """The heart of another instance: a count that grows by one with each accepted beat."""

    id: InstanceId
    beat: int


class Leader(msgspec.Struct, frozen=True, kw_only=True):
    """Who leads the cluster. Leadership saves work; nothing that must be right depends on it."""

    instance: InstanceId
    term: int
    """Grows by one whenever the holder changes."""


class LeaderInfo(msgspec.Struct, frozen=True, kw_only=True):
    """The leader as people look at it."""

    instance: InstanceId
    term: int
    since: datetime
    """When its term began."""
    until: datetime
    """When its lease runs out, unless it is renewed."""


class HeartbeatReply(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to a heartbeat: everything an instance needs to hear, once a second."""

    alive: bool
    """False: this instance was buried or is unknown; all its jobs belong to others, it must not write again."""
    beat: int
    """This instance's own count after this beat; lower than remembered means that the store went back."""
    now: int
    running: int
    """How many jobs the store believes are running under this instance."""
    cancel_requests: list[ClaimRef]
    """Its running jobs that somebody wants cancelled."""
    blocked_on: list[str]
    """Distinct blocked_on values of pending jobs (at most 1,000)."""
    peers: list[Peer]
    """Every other living instance."""
    leader: Leader | None = None
    """Whose leadership has not expired, after this beat."""
    next_fire_at: int | None = None
    """The first next_at of all active schedules; it may have passed."""


class DeadInstanceReport(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a dead instance's jobs."""

    declared: bool
    """False: it beat again, or was buried or gone already; nothing was changed."""
    crash_suspect: int = 0
    """Had started: crashes is at least 1 now, they run alone next time."""
    released: int = 0
    """Had not started: pending again, unharmed."""
    dead: int = 0
    """Reached their crash_limit."""
    cancelled: int = 0
    """Somebody had asked for their cancellation."""

    def describe(self, reason: str) -> str:
        """Why an instance is gone and what was recovered from it, for people. `lua/declare_instance_dead.lua` says the same."""
        numbers = {"to run again alone": self.crash_suspect, "given back": self.released}
        numbers |= {"dead": self.dead, "cancelled": self.cancelled}
        parts = [f"{number} {what}" for what, number in numbers.items() if number]
        return f"{reason}; its jobs: {', '.join(parts)}" if parts else reason


class Instance(msgspec.Struct, frozen=True, kw_only=True):
    """The record of an instance, as people look at it."""

    id: InstanceId
    state: InstanceState
    app: str
    version: str
    host: str
    pid: int
    roles: tuple[Role, ...]
    queues: tuple[str, ...]
    tasks: dict[str, str]
    concurrency: int
    running: int
    """Jobs it ran at its last beat."""
    refused: int
    """Outcomes of this instance that were refused as stale: it had lost those jobs to others."""
    beat: int
    started_at: datetime
    beat_at: datetime
    rooms: dict[str, str] = {}
    """name -> signature hash of every room it is in; one that drains has left them."""
    ended_at: datetime | None = None
    ended_reason: str | None = None


HEALTHY_TIMEOUT = 2.0


def is_healthy(instance: Instance, now: int, heartbeat_interval: float) -> bool:
    """Whether its last heartbeat is no older than 2 s (two heartbeats if that is more) at this time of the store's clock.

    It says whom to count on now. Whether an instance is dead is judged by observers, after `dead_after`."""
    if instance.state is not InstanceState.ALIVE:
        return False
    return now - to_us(instance.beat_at) <= 1e6 * max(HEALTHY_TIMEOUT, 2 * heartbeat_interval)
