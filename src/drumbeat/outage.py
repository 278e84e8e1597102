"""What an instance tells of its store: that it stopped answering, and that it answers again.

For `Patience`, which knows when; what is told goes to subscribers and logs, so the URL has no password in it.
"""

from collections.abc import Callable

from drumbeat.clock import Clock
from drumbeat.errors import StoreUnavailable
from drumbeat.events import Events, StoreDown, StoreUp
from drumbeat.ids import InstanceId
from drumbeat.store.urls import masked


class Outage:
    def __init__(self, events: Events, clock: Clock, url: str, identity: Callable[[], InstanceId]) -> None:
        self._events = events
        self._clock = clock
        self._url = masked(url)
        self._identity = identity
        self._began_at = 0.0

    def begins(self, error: StoreUnavailable) -> None:
        self._began_at = self._clock.monotonic()
        self._events.emit(StoreDown(instance=self._identity(), url=self._url, reason=str(error)))

    def ends(self) -> None:
        after = self._clock.monotonic() - self._began_at
        self._events.emit(StoreUp(instance=self._identity(), url=self._url, after=after))
