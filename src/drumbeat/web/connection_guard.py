"""Limits of the dashboard server's connections, in all and for each client.

Without limits, 140 idle clients use up the file descriptors of a process, and no request is answered.

    opened -> waiting for a request head -> busy with a request -> waiting for the next head -> ...

A connection that waits too long for a head, or whose client does not read, is dropped. When there are too many, in all or
of one client, a new connection replaces the one that has waited longest; it is refused only if all are busy.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import resource
from typing import Any, ClassVar

import msgspec
from uvicorn.protocols.http.h11_impl import H11Protocol

from drumbeat.clock import SYSTEM, Clock
from drumbeat.web.access import client_network

log = logging.getLogger(__name__)

MAX_CONNECTIONS = 1_000
ACCEPT_BATCH = 8
"""Connections accepted before the first of them is counted."""
REFUSAL = (
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/plain\r\nContent-Length: 21\r\nRetry-After: 5\r\n"
    b"Connection: close\r\n\r\nToo many connections\n"
)
AddressGroup = ipaddress.IPv4Address | ipaddress.IPv6Network | None


class ConnectionLimits(msgspec.Struct, frozen=True, kw_only=True):
    connections: int
    """Total."""
    per_address: int
    """For each client; a 64-bit IPv6 network counts as one."""
    head_timeout: float = 10.0
    """Seconds from opening, or from the previous response, to the end of a request head."""
    write_timeout: float = 20.0
    """Seconds in which a client must read something of its response."""

    @property
    def streams(self) -> int:
        """Event streams."""
        return max(1, self.connections // 2)

    @property
    def streams_per_caller(self) -> int:
        return max(1, self.connections // 8)


def default_limits() -> ConnectionLimits:
    """Half of the process's file descriptors; the rest is for the store and for accepting."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = MAX_CONNECTIONS if soft == resource.RLIM_INFINITY else min(MAX_CONNECTIONS, max(8, soft // 2))
    return ConnectionLimits(connections=most, per_address=max(4, most // 2))


class ConnectionGuard:
    """The open connections."""

    def __init__(self, limits: ConnectionLimits, clock: Clock = SYSTEM) -> None:
        self.limits = limits
        self._clock = clock
        self._open: dict[AddressGroup, set[BoundedProtocol]] = {}
        self._is_full = False

    def __len__(self) -> int:
        return sum(map(len, self._open.values()))

    def now(self) -> float:
        return self._clock.monotonic()

    def admit(self, new: BoundedProtocol) -> bool:
        """Whether the new connection may stay; another may have been dropped for it."""
        its_own = self._open.get(new.group, set())
        if len(its_own) >= self.limits.per_address:
            is_admitted = self._drop_one(its_own)
        elif len(self) >= self.limits.connections:
            # From the client with the most connections.
            crowds = sorted(self._open.values(), key=len, reverse=True)
            is_admitted = any(self._drop_one(crowd) for crowd in crowds)
        else:
            is_admitted = True
            self._is_full = False
        if is_admitted:
            self._open.setdefault(new.group, set()).add(new)
        elif not self._is_full:
            self._is_full = True
            log.warning("too many connections to the dashboard", extra={"open": len(self), "refused": str(new.group)})
        return is_admitted

    def remove(self, connection: BoundedProtocol) -> None:
        if (group := self._open.get(connection.group)) is not None:
            group.discard(connection)
            if not group:
                del self._open[connection.group]

    def sweep(self) -> None:
        """Drop connections that exceed a time limit. Called about twice a second."""
        now = self.now()
        for connection in [each for group in self._open.values() for each in group]:
            if connection.is_late(now, self.limits):
                self._drop(connection)

    def _drop_one(self, some: set[BoundedProtocol]) -> bool:
        waiting = [each for each in some if each.waiting_since is not None]
        if waiting:
            self._drop(min(waiting, key=lambda each: each.waiting_since or 0.0))
        return bool(waiting)

    def _drop(self, connection: BoundedProtocol) -> None:
        self.remove(connection)
        connection.transport.abort()


class BoundedProtocol(H11Protocol):
    """uvicorn's HTTP/1.1 protocol with limits."""

    guard: ClassVar[ConnectionGuard]

    group: AddressGroup = None
    waiting_since: float | None = None
    """Since when it waits for a request head; None: busy with a request."""
    _stuck_since: float | None = None
    _left_to_send = 0
    _is_refused = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.group = client_network((self.client or ("", 0))[0])
        self.waiting_since = self.guard.now()
        if not self.guard.admit(self):
            self._is_refused = True
            transport.write(REFUSAL)
            transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self.guard.remove(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if not self._is_refused:
            super().data_received(data)
            self._update_waiting()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._update_waiting()

    def _update_waiting(self) -> None:
        """Update `waiting_since`. The time limit for a head counts from its beginning, not from its last byte."""
        cycle: Any = self.cycle  # none before the first request
        if cycle is not None and not cycle.response_complete:
            self.waiting_since = None
        elif self.waiting_since is None:
            self.waiting_since = self.guard.now()

    def is_late(self, now: float, limits: ConnectionLimits) -> bool:
        if self.waiting_since is not None and now - self.waiting_since > limits.head_timeout:
            return True
        # The send buffer has not shrunk since the last sweep: the client does not read.
        before, self._left_to_send = self._left_to_send, self.transport.get_write_buffer_size()
        if self._left_to_send == 0 or self._left_to_send < before:
            self._stuck_since = None
        elif self._stuck_since is None:
            self._stuck_since = now
        return self._stuck_since is not None and now - self._stuck_since > limits.write_timeout


def make_protocol(guard: ConnectionGuard) -> type[Any]:
    """The protocol class for one server."""
    return type("GuardedProtocol", (BoundedProtocol,), {"guard": guard})
