"""What all requests of one dashboard share."""

from __future__ import annotations

from drumbeat.web.access import Access, Gate
from drumbeat.web.files import Files
from drumbeat.web.host import Host


class Parts:
    def __init__(self, host: Host, access: Access | None = None) -> None:
        self._host = host
        self._access = access
        self._gate: Gate | None = None
        self.files = Files()
        self.is_closing = False
        """Set by whoever stops the server: open event streams end."""

    @property
    def gate(self) -> Gate:
        # Not in the constructor: `app.dashboard()` is often called at import, before the settings may be read.
        if self._gate is None:
            self._gate = Gate(self._host.settings, self._host.clock, self._access)
        return self._gate
