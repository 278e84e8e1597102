"""What all requests of one dashboard share."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from functools import cached_property
from typing import Any, Literal
from weakref import WeakKeyDictionary

from drumbeat.admin.health import HealthMonitor
from drumbeat.protocols import DashboardApp
from drumbeat.web.access import Access, AccessControl
from drumbeat.web.background_acts import BackgroundActs
from drumbeat.web.panels import Panel, panel_routes
from drumbeat.web.static_files import StaticFileCache
from drumbeat.web.ticker import Ticker

MAX_STREAMS = 500
MAX_STREAMS_PER_CALLER = 50
"""A page has one; a person may have many pages open, and all who come from this machine without a login are one caller."""


class StreamLimiter:
    """Who looks on: a stream holds a connection and memory of the server for as long as it is open."""

    def __init__(self) -> None:
        self._open: Counter[str] = Counter()
        self.set_limits(MAX_STREAMS, MAX_STREAMS_PER_CALLER)

    def __len__(self) -> int:
        return self._open.total()

    def set_limits(self, limit: int, per_caller: int) -> None:
        """Allow no more than this; what is open already stays."""
        self.limit = min(limit, MAX_STREAMS)
        self.per_caller = min(per_caller, MAX_STREAMS_PER_CALLER)

    def can_open(self, who: str) -> bool:
        return len(self) < self.limit and self._open[who] < self.per_caller

    def open(self, who: str) -> None:
        self._open[who] += 1

    def close(self, who: str) -> None:
        self._open[who] -= 1
        if self._open[who] <= 0:
            del self._open[who]


class DashboardState:
    def __init__(
        self, app: DashboardApp, access: Access | Literal["open"] | None = None, panels: Sequence[Panel] = ()
    ) -> None:
        self.app = app
        self._access = access
        self._tickers: WeakKeyDictionary[asyncio.AbstractEventLoop, Ticker] = WeakKeyDictionary()
        self.static_files = StaticFileCache()
        self.panels = tuple(panels)
        self.panel_routes = panel_routes(panels)
        """Rows of the table of routes that are in this dashboard only."""
        self.cache: dict[type, tuple[float, Any]] = {}
        """What costs the store more than a moment: when it was asked for (monotonic), and the answer."""
        self.health = HealthMonitor(app.clock)
        self.background_acts = BackgroundActs()
        """Acts of this process that go on after their answer."""
        self.streams = StreamLimiter()
        """Open event streams."""
        self.is_closing = False
        """Set by whoever stops the server: open event streams end."""

    @cached_property
    def access_control(self) -> AccessControl:
        # Not in the constructor: `app.dashboard()` is often called at import, before the settings may be read.
        return AccessControl(self.app.settings, self.app.clock, self._access)

    @property
    def ticker(self) -> Ticker:
        """The one of the running loop: a server has one, and a store belongs to its loop."""
        loop = asyncio.get_running_loop()
        if (found := self._tickers.get(loop)) is None:
            found = self._tickers[loop] = Ticker(self.app, self.health)
        return found
