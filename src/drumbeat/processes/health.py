"""What a process says of itself to whoever keeps it running: is it alive, is it ready for work?

live     its loops respond. A restart helps a process that is not.
ready    it takes jobs: registered, its store answers, not stopping.

`HealthReporter` (health_reporter.py) asks a `HealthSource` from a thread of its own: code that blocks a loop cannot delay the
answer.
"""

import asyncio
from collections.abc import Iterable
from typing import Protocol

import msgspec

from drumbeat.clock import Clock


class ProcessHealth(msgspec.Struct, frozen=True, kw_only=True, tag="health"):
    """Goes to whoever can reach the endpoint: it must hold no URL and no arguments."""

    live: bool = True
    ready: bool = False
    stopping: bool = False
    running: int = 0
    """Jobs that run now."""
    reasons: tuple[str, ...] = ()
    """Why it is not live, or not ready."""


def encode_report(report: ProcessHealth) -> bytes:
    """As JSON, for people and probes."""
    shown = {"live": report.live, "ready": report.ready, "running": report.running, "reasons": report.reasons}
    return msgspec.json.encode(shown) + b"\n"


class HealthSource(Protocol):
    def report(self) -> ProcessHealth:
        """The current state. Called on the reporter's thread; returns at once."""
        ...


class LoopPulse:
    """Whether an event loop responds, as seen from another thread."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pinged_at: float | None = None

    def watch(self, loop: asyncio.AbstractEventLoop) -> None:
        if loop is not self._loop:
            self._loop, self._pinged_at = loop, None

    def silence(self) -> float:
        """How many seconds the last ping has had no answer; 0: it has one. Sends the next."""
        pinged_at = self._pinged_at
        if pinged_at is not None:
            return self._clock.monotonic() - pinged_at
        if self._loop is not None:
            self._pinged_at = self._clock.monotonic()
            try:
                self._loop.call_soon_threadsafe(self._answer)
            except RuntimeError:  # it is closed: the process is about to exit
                self._pinged_at = None
        return 0.0

    def _answer(self) -> None:
        self._pinged_at = None


def combine(reports: Iterable[tuple[str, ProcessHealth]]) -> ProcessHealth:
    """The health of a process that has others under it, by their names: as good as the worst of them."""
    known = list(reports)
    return ProcessHealth(
        live=all(each.live for _, each in known),
        ready=bool(known) and all(each.ready for _, each in known),
        running=sum(each.running for _, each in known),
        reasons=tuple(f"{name}: {reason}" for name, each in known for reason in each.reasons),
    )
