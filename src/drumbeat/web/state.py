"""State shared by all requests of one dashboard."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from functools import cached_property
from typing import Any, Literal
from weakref import WeakKeyDictionary

from drumbeat.admin import Admin
from drumbeat.admin.health import HealthMonitor
from drumbeat.web.access import Access, AccessControl
from drumbeat.web.panels import Panel, panel_routes
from drumbeat.web.static_files import StaticFileCache
from drumbeat.web.ticker import Ticker

MAX_STREAMS = 500
MAX_STREAMS_PER_CALLER = 50
"""A page has one; a person may have many pages open, and all local requests without a login are one caller."""


class StreamLimiter:
    """Limits open event streams: each holds a connection and memory of the server."""

    def __init__(self) -> None:
        self._open: Counter[str] = Counter()
        self.set_limits(MAX_STREAMS, MAX_STREAMS_PER_CALLER)

    def __len__(self) -> int:
        return self._open.total()

    def set_limits(self, limit: int, per_caller: int) -> None:
        """Set the limits; open streams stay."""
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
        self, app: Admin, access: Access | Literal["open"] | None = None, panels: Sequence[Panel] = ()
    ) -> None:
        self.app = app
        self._access = access
        self._tickers: WeakKeyDictionary[asyncio.AbstractEventLoop, Ticker] = WeakKeyDictionary()
        self.static_files = StaticFileCache()
        self.panels = tuple(panels)
        self.panel_routes = panel_routes(panels)
        """Routes that only this dashboard has."""
        self.cache: dict[type, tuple[float, Any]] = {}
        """Results of expensive queries, with when they were read (monotonic)."""
        self.health = HealthMonitor(app.clock)
        self.streams = StreamLimiter()
        """Open event streams."""
        self.is_closing = False
        """Set when the server stops: open event streams end."""

    @cached_property
    def access_control(self) -> AccessControl:
        # Not in the constructor: `app.dashboard()` is often called at import, before the settings may be read.
        return AccessControl(self.app.settings, self.app.clock, self._access)

    @property
    def ticker(self) -> Ticker:
        """The ticker of the running loop: a store belongs to its loop."""
        loop = asyncio.get_running_loop()
        if (found := self._tickers.get(loop)) is None:
            found = self._tickers[loop] = Ticker(self.app, self.health)
        return found
