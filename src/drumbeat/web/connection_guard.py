"""How many connections a server of ours keeps, for whom, and for how long.

Without bounds, 140 clients that say nothing take all file descriptors of a process, and nobody is answered any more.

    opened -> waits for the head of a request -> busy with a request -> waits for the next head -> ...

Who waits longer than the limit for a head is dropped, and so is who does not read what it asked for. When there are too many
connections, in all or of one address, a new one takes the place of the one that has waited longest: who says nothing makes way
for who does. Only if all are busy is the new one refused.
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
"""Connections that are accepted before the first of them is counted here."""
REFUSAL = (
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/plain\r\nContent-Length: 21\r\nRetry-After: 5\r\n"
    b"Connection: close\r\n\r\nToo many connections\n"
)
AddressGroup = ipaddress.IPv4Address | ipaddress.IPv6Network | None


class ConnectionLimits(msgspec.Struct, frozen=True, kw_only=True):
    connections: int
    """In all."""
    per_address: int
    """Of one address; an IPv6 network of 64 bits counts as one."""
    head_timeout: float = 10.0
    """Seconds from the opening, or from the answer before, to the end of a request's head."""
    write_timeout: float = 20.0
    """Seconds in which a client must take something of what waits for it."""

    @property
    def streams(self) -> int:
        """Event streams, which are connections that stay."""
        return max(1, self.connections // 2)

    @property
    def streams_per_caller(self) -> int:
        return max(1, self.connections // 8)


def default_limits() -> ConnectionLimits:
    """By the file descriptors that this process may have; the other half is for the store and the accepting."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = MAX_CONNECTIONS if soft == resource.RLIM_INFINITY else min(MAX_CONNECTIONS, max(8, soft // 2))
    return ConnectionLimits(connections=most, per_address=max(4, most // 2))


class ConnectionGuard:
    """Those that are open."""

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
        """Whether the new one may stay; others may have made way for it."""
        its_own = self._open.get(new.group, set())
        if len(its_own) >= self.limits.per_address:
            is_admitted = self._drop_one(its_own)
        elif len(self) >= self.limits.connections:
            # Of whoever has most: a crowd makes way for a single one, not the other way round.
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
        """Drop those who take too long. Called about once a second."""
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
    """uvicorn's HTTP/1.1, counted and timed."""

    guard: ClassVar[ConnectionGuard]

    group: AddressGroup = None
    waiting_since: float | None = None
    """Since when it waits for the head of a request; None: it is busy with one."""
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
        """Whether a request is under way now. The time for a head is counted from its beginning, not from its last byte."""
        cycle: Any = self.cycle  # none before the first request
        if cycle is not None and not cycle.response_complete:
            self.waiting_since = None
        elif self.waiting_since is None:
            self.waiting_since = self.guard.now()

    def is_late(self, now: float, limits: ConnectionLimits) -> bool:
        if self.waiting_since is not None and now - self.waiting_since > limits.head_timeout:
            return True
        # Without a pause in between, and never less than the second before: nobody reads.
        before, self._left_to_send = self._left_to_send, self.transport.get_write_buffer_size()
        if self._left_to_send == 0 or self._left_to_send < before:
            self._stuck_since = None
        elif self._stuck_since is None:
            self._stuck_since = now
        return self._stuck_since is not None and now - self._stuck_since > limits.write_timeout


def make_protocol(guard: ConnectionGuard) -> type[Any]:
    """The protocol of one server."""
    return type("GuardedProtocol", (BoundedProtocol,), {"guard": guard})
