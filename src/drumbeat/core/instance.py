"""Instances: the processes of the cluster, each with a random id and a heartbeat."""

from datetime import datetime
from enum import StrEnum
from typing import Annotated

import msgspec

from drumbeat.core.claim import ClaimRef
from drumbeat.core.field_doc import doc
from drumbeat.durations import to_us
from drumbeat.ids import InstanceId


class InstanceState(StrEnum):
    ALIVE = "alive"
    LEFT = "left"  # deregistered
    DEAD = "dead"  # declared dead by an observer that saw no heartbeat; never revived


class Role(StrEnum):
    WORKER = "worker"
    CONTROLLER = "controller"


class InstanceFields(msgspec.Struct, frozen=True, kw_only=True):
    """What an instance says of itself."""

    id: InstanceId
    app: str
    version: str
    host: str
    pid: int
    roles: tuple[Role, ...]
    queues: tuple[str, ...]
    tasks: Annotated[dict[str, str], doc("name -> signature hash of every task it knows.")]
    concurrency: int
    rooms: Annotated[dict[str, str], doc("name -> signature hash of every room it is in; empty while it drains.")] = {}


class NewInstance(InstanceFields, frozen=True, kw_only=True):
    wake: str | None = None
    """Its address for notifications (SQLite: the path of its datagram socket)."""


class Peer(msgspec.Struct, frozen=True, array_like=True):
    """Another living instance, and its count of accepted heartbeats."""

    id: InstanceId
    beat: int


class Leader(msgspec.Struct, frozen=True, kw_only=True):
    """The leader of the cluster. Leadership saves work; correctness does not depend on it."""

    instance: InstanceId
    term: Annotated[int, doc("Grows by one whenever the holder changes.")]


class LeaderInfo(Leader, frozen=True, kw_only=True):
    """The leader, for display."""

    since: Annotated[datetime, doc("Beginning of its term.")]
    until: Annotated[datetime, doc("When its lease runs out, unless it is renewed.")]


class HeartbeatReply(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to a heartbeat: what an instance must know once a second."""

    alive: bool
    """False: this instance was declared dead or is unknown; its jobs belong to others, and it must not write again."""
    beat: int
    """This instance's own count after this heartbeat; lower than before: the store was restored from a backup."""
    now: int
    running: int
    """How many jobs the store believes are running under this instance."""
    cancel_requests: list[ClaimRef]
    """Its running jobs whose cancellation was requested."""
    blocked_on: list[str]
    """Distinct blocked_on values of pending jobs (at most 1,000)."""
    peers: list[Peer]
    """Every other living instance."""
    leader: Leader | None = None
    """The leader whose lease has not expired, after this heartbeat."""
    next_fire_at: int | None = None
    """The first next_at of all active schedules; it may have passed."""


class DeadInstanceReport(msgspec.Struct, frozen=True, kw_only=True):
    """The result of declaring an instance dead: numbers of its jobs."""

    declared: bool
    """False: it sent a heartbeat, or had ended already; nothing was changed."""
    crash_suspect: int = 0
    """Had started: crashes is at least 1 now, and they run alone next time."""
    released: int = 0
    """Had not started: pending again, not charged."""
    dead: int = 0
    """Reached their crash_limit."""
    cancelled: int = 0
    """Their cancellation had been requested."""

    def describe(self, reason: str) -> str:
        """The ended_reason of the instance: `reason` and these numbers. `lua/declare_instance_dead.lua` writes the same."""
        numbers = {"to run again alone": self.crash_suspect, "released": self.released}
        numbers |= {"dead": self.dead, "cancelled": self.cancelled}
        parts = [f"{number} {what}" for what, number in numbers.items() if number]
        return f"{reason}; its jobs: {', '.join(parts)}" if parts else reason


class Instance(InstanceFields, frozen=True, kw_only=True):
    """The record of an instance, for display."""

    state: InstanceState
    running: Annotated[int, doc("How many jobs it ran at its last heartbeat.")]
    refused: Annotated[int, doc("Outcomes that were refused as stale: the jobs belonged to others by then.")]
    beat: int
    started_at: datetime
    beat_at: datetime
    ended_at: datetime | None = None
    ended_reason: str | None = None


HEALTHY_TIMEOUT = 2.0


def is_healthy(instance: Instance, now: int, heartbeat_interval: float) -> bool:
    """Whether its last heartbeat is at most 2 s (or two heartbeats) old at this time of the store's clock.

    For display and health checks; whether an instance is dead is decided by observers, after `dead_after`."""
    if instance.state is not InstanceState.ALIVE:
        return False
    return now - to_us(instance.beat_at) <= 1e6 * max(HEALTHY_TIMEOUT, 2 * heartbeat_interval)
