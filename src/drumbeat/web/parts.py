"""What all requests of one dashboard share."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import Any, Literal
from weakref import WeakKeyDictionary

from drumbeat.nouns.health import HealthWatch
from drumbeat.web.access import Access, Gate
from drumbeat.web.background import Background
from drumbeat.web.files import Files
from drumbeat.web.host import Host
from drumbeat.web.panels import Panel, routes_of
from drumbeat.web.ticker import Ticker

MAX_STREAMS = 500
MAX_STREAMS_PER_CALLER = 50
"""A page has one; a person may have many pages open, and all who come from this machine without a login are one caller."""


class Streams:
    """Who looks on: a stream holds a connection and memory of the server for as long as it is open."""

    def __init__(self) -> None:
        self._open: Counter[str] = Counter()
        self.bound(MAX_STREAMS, MAX_STREAMS_PER_CALLER)

    def __len__(self) -> int:
        return self._open.total()

    def bound(self, limit: int, per_caller: int) -> None:
        """Allow no more than this; what is open already stays."""
        self.limit = min(limit, MAX_STREAMS)
        self.per_caller = min(per_caller, MAX_STREAMS_PER_CALLER)

    def has_room(self, who: str) -> bool:
        return len(self) < self.limit and self._open[who] < self.per_caller

    def enter(self, who: str) -> None:
        self._open[who] += 1

    def leave(self, who: str) -> None:
        self._open[who] -= 1
        if self._open[who] <= 0:
            del self._open[who]


class Parts:
    def __init__(
        self, host: Host, access: Access | Literal["open"] | None = None, panels: Sequence[Panel] = ()
    ) -> None:
        self._host = host
        self._access = access
        self._gate: Gate | None = None
        self._tickers: WeakKeyDictionary[asyncio.AbstractEventLoop, Ticker] = WeakKeyDictionary()
        self.files = Files()
        self.panels = tuple(panels)
        self.extra = routes_of(panels)
        """Rows of the table of routes that are in this dashboard only."""
        self.kept: dict[type, tuple[float, Any]] = {}
        """What costs the store more than a moment: when it was asked for (monotonic), and the answer."""
        self.health = HealthWatch(host.clock)
        self.background = Background()
        """Acts of this process that go on after their answer."""
        self.streams = Streams()
        """Open event streams."""
        self.is_closing = False
        """Set by whoever stops the server: open event streams end."""

    @property
    def gate(self) -> Gate:
        # Not in the constructor: `app.dashboard()` is often called at import, before the settings may be read.
        if self._gate is None:
            self._gate = Gate(self._host.settings, self._host.clock, self._access)
        return self._gate

    @property
    def ticker(self) -> Ticker:
        """The one of the running loop: a server has one, and a store belongs to its loop."""
        loop = asyncio.get_running_loop()
        if (found := self._tickers.get(loop)) is None:
            found = self._tickers[loop] = Ticker(self._host, self.health)
        return found
