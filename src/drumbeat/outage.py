"""Report outages of the store: that it is unreachable or full, and that this is over.

    parts on the worker's loop        --failed, answered--> |                | --> StoreDown, StoreUp
    parts on the heartbeat's loop     --full only---------> | OutageReporter | --> StoreOutOfSpace, StoreHasSpace

Each event is emitted once, however many parts are affected. An outage is over with the first answer to any part. A full store
is so until every part that was refused has been served: it still answers reads, and lets jobs end where the engine can.

`OutageBackoff` calls this. The events go to subscribers and logs, so the URL is masked.
"""

import threading
from collections.abc import Callable

from drumbeat.clock import Clock
from drumbeat.errors import StoreFull, StoreUnavailable
from drumbeat.events import Events, StoreDown, StoreHasSpace, StoreOutOfSpace, StoreUp
from drumbeat.ids import InstanceId
from drumbeat.redaction import mask_url
from drumbeat.settings import Settings


class OutageReporter:
    """An `OutageListener` for the parts of one instance. Thread-safe."""

    def __init__(self, events: Events, clock: Clock, url: str, identity: Callable[[], InstanceId]) -> None:
        self._events = events
        self._clock = clock
        self._url = mask_url(url)
        self._identity = identity
        self._mutex = threading.Lock()
        self._began_at = self._full_since = 0.0
        self._refused: set[int] = set()
        self.is_away = False

    def on_failure(self, part: object, error: StoreUnavailable) -> None:
        if isinstance(error, StoreFull):
            self._end_outage()
            self.on_full(part, error)
            return
        with self._mutex:
            if self.is_away:
                return
            self.is_away, self._began_at = True, self._clock.monotonic()
        self._events.emit(StoreDown(instance=self._identity(), url=self._url, reason=str(error)))

    def on_answer(self, part: object) -> None:
        self._end_outage()
        self.on_accepted(part)

    def on_full(self, part: object, error: StoreFull) -> None:
        """The store has no space for what this part writes."""
        with self._mutex:
            is_first = not self._refused
            self._refused.add(id(part))
            if is_first:
                self._full_since = self._clock.monotonic()
        if is_first:
            self._events.emit(StoreOutOfSpace(instance=self._identity(), url=self._url, reason=str(error)))

    def on_accepted(self, part: object) -> None:
        """The store has accepted what this part writes."""
        with self._mutex:
            was_full = bool(self._refused)
            self._refused.discard(id(part))
            is_over = was_full and not self._refused
        if is_over:
            after = self._clock.monotonic() - self._full_since
            self._events.emit(StoreHasSpace(instance=self._identity(), url=self._url, after=after))

    def _end_outage(self) -> None:
        with self._mutex:
            was_away, self.is_away = self.is_away, False
        if was_away:
            after = self._clock.monotonic() - self._began_at
            self._events.emit(StoreUp(instance=self._identity(), url=self._url, after=after))


class FullStoreReporter:
    """An `OutageListener` for parts whose outages others report sooner: it passes on only that the store is full."""

    is_away = False

    def __init__(self, reporter: OutageReporter) -> None:
        self._reporter = reporter

    def on_failure(self, part: object, error: StoreUnavailable) -> None:
        if isinstance(error, StoreFull):
            self._reporter.on_full(part, error)

    def on_answer(self, part: object) -> None:
        self._reporter.on_accepted(part)


class UnreachableRule:
    """When an outage has lasted too long: after `max_failed_beats` failures in a row, or after the longest time that this many
    heartbeats may take to fail."""

    def __init__(self, settings: Settings, clock: Clock) -> None:
        self._max_failures = settings.max_failed_beats
        self._max_seconds = settings.max_failed_beats * (settings.heartbeat + settings.dead_after / 2)
        self._clock = clock
        self._since = 0.0
        self.failures = 0

    def record_failure(self) -> bool:
        """Count one more failure. Returns whether it is one too many."""
        now = self._clock.monotonic()
        if not self.failures:
            self._since = now
        self.failures += 1
        return self.failures >= self._max_failures or now - self._since >= self._max_seconds

    def reset(self) -> None:
        self.failures = 0
