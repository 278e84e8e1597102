"""Hints to workers that a job or a message is there: a datagram to each process, with polling beneath.

    writer --commit--> SqliteNotifier --datagram, earliest run_at--> socket of each worker --> on_notification(run_at)
    writer --commit--> SqliteNotifier --datagram, "room"--> socket of each worker that has messages --> its room listeners
    any commit --> PRAGMA data_version changes ----------------------- polled every 50 ms --> on_notification(0)

Datagrams make it fast, data_version makes it reliable: it also sees commits of programs that send no datagrams. Both are only
hints. The first of a burst is sent at once; those that follow within 2 ms are sent as one at the end of the 2 ms, so that none
is lost and a flood of enqueues is no flood of datagrams. Polling the version every 5 ms would cost 1.2 % of a core.
"""

import asyncio
import contextlib
import os
import socket
import sqlite3
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from pathlib import Path

from drumbeat.clock import SYSTEM
from drumbeat.errors import ConfigError
from drumbeat.store.protocol.wake import OnHandoff
from drumbeat.store.sqlite import rows
from drumbeat.store.sqlite.connection import SqliteConnection, translate_errors
from drumbeat.store.sqlite.file_checks import FileIdentity

BURST_S = 0.002
VERSION_POLL_S = 0.05
SOCKET_QUEUE_LIMIT = 8
"""The kernel queues about ten datagrams for a socket: if this many arrive at once, some may have been lost."""
OnDueHint = Callable[[int], object]
OnTicketHint = Callable[[str, int], None]
OnRoomHint = Callable[[str], None]
WakeHint = tuple[str, str, int]
"""Address, ticket, and in how many microseconds its owner should check it; ROOM_HINT as ticket: there are messages."""
ROOM_HINT = "room"


class SqliteNotifier:
    """The sending end, on the writer's thread."""

    def __init__(self, addresses_sql: str, loop: asyncio.AbstractEventLoop) -> None:
        self._addresses_sql = addresses_sql
        self._loop = loop
        self._socket: socket.socket | None = None
        self._pending: int | None = None
        self._addresses: list[str] = []
        self._sent_at = float("-inf")
        self.listeners: dict[str, OnDueHint] = {}
        """Listeners of this very store by address, which need no datagram. Changed on the loop's thread only."""

    def notify(self, run_at: int, db: SqliteConnection) -> None:
        """Tell all workers that a job may be due at this time: at once, or at the end of the burst."""
        if self.listeners:  # each call wakes the loop
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._notify_listeners, run_at)
        # Only a hint: a failure must not reach those whose work is committed.
        with contextlib.suppress(sqlite3.Error):
            self._addresses = rows.texts(db.value(self._addresses_sql))
        self._pending = run_at if self._pending is None else min(run_at, self._pending)
        if SYSTEM.monotonic() - self._sent_at >= BURST_S:
            self.flush()

    def _notify_listeners(self, run_at: int) -> None:
        """On the loop's thread."""
        for on_notification in list(self.listeners.values()):
            on_notification(run_at)

    def send_hints(self, hints: Iterable[WakeHint]) -> None:
        """Tell the owners of tickets, at once: each hint has one receiver."""
        for address, ticket, after in hints:
            self._send(f"{ticket} {after}".encode(), [address])

    def flush_delay(self) -> float | None:
        """Seconds until `flush` must be called; None: nothing is pending."""
        if self._pending is None:
            return None
        return max(0.0, self._sent_at + BURST_S - SYSTEM.monotonic())

    def flush(self) -> None:
        if self._pending is None:
            return
        text = str(self._pending).encode()
        self._pending = None
        self._sent_at = SYSTEM.monotonic()
        if remote := [address for address in self._addresses if address not in self.listeners]:
            self._send(text, remote)

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _send(self, text: bytes, addresses: Iterable[str]) -> None:
        if self._socket is None:
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            self._socket.setblocking(False)
        for address in addresses:
            # Full: the worker has hints enough. Refused: it died. It polls, or whoever takes its jobs over does.
            with contextlib.suppress(OSError):
                self._socket.sendto(text, address)


class SqliteWake:
    """The listening end, on the loop."""

    def __init__(
        self,
        path: Path,
        notifier: SqliteNotifier,
        *,
        notify: Callable[[int], Awaitable[None]],
        identity: Callable[[], FileIdentity | None],
    ) -> None:
        self._path = path
        self._notifier = notifier
        self._notify = notify
        self._identity = identity
        self._room_listeners: list[OnRoomHint] = []

    async def notify(self, run_at: int) -> None:
        await self._notify(run_at)

    def forward(self, notify: Callable[[int], bool]) -> None:
        self._notifier.listeners[""] = notify

    @contextlib.asynccontextmanager
    async def listen(
        self, on_notification: OnDueHint, on_handoff: OnHandoff | None = None
    ) -> AsyncIterator[str | None]:
        """Call `on_notification(run_at)` for every hint. Yields the path of the socket."""
        with translate_errors(self._path):
            # Used on the loop's thread, which must not wait for a lock.
            db = SqliteConnection(self._path, read_only=True, busy_timeout=0)
            poller = _DataVersionPoller(db, on_notification, self._identity)
        with _listening_socket(lambda sock: _receive_hints(sock, on_notification, self._notify_rooms)) as address:
            self._notifier.listeners[address] = on_notification
            poller.start(asyncio.get_running_loop())
            try:
                yield address
            finally:
                poller.stop()
                del self._notifier.listeners[address]

    @contextlib.asynccontextmanager
    async def listen_tickets(self, on_notification: OnTicketHint) -> AsyncIterator[str | None]:
        """Call `on_notification(ticket, after)` for every hint. Yields the path of the socket."""
        with _listening_socket(lambda sock: _receive_ticket_hints(sock, on_notification)) as address:
            yield address

    @contextlib.asynccontextmanager
    async def listen_rooms(self, on_notification: OnRoomHint) -> AsyncIterator[None]:
        """The hints come to the socket of `listen`, whose address is in the instance's row."""
        self._room_listeners.append(on_notification)
        try:
            yield
        finally:
            self._room_listeners.remove(on_notification)

    def _notify_rooms(self) -> None:
        for on_notification in list(self._room_listeners):
            on_notification("")


class _DataVersionPoller:
    """Polls data_version, which changes with every commit of another connection. A poll takes some microseconds."""

    def __init__(self, db: SqliteConnection, on_change: OnDueHint, identity: Callable[[], FileIdentity | None]) -> None:
        self._db = db
        self._on_change = on_change
        self._identity = identity
        self._last_version = self._read_version()
        self._timer: asyncio.TimerHandle | None = None

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = loop.call_later(VERSION_POLL_S, self._poll, loop)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if (identity := self._identity()) is not None and identity.is_lost:
            self._db.leak()
        else:
            self._db.close()

    def _poll(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = loop.call_later(VERSION_POLL_S, self._poll, loop)
        # A store that cannot be read is reported by the next call that reads it.
        with contextlib.suppress(sqlite3.Error):
            version = self._read_version()
            if version != self._last_version:
                self._last_version = version
                self._on_change(0)

    def _read_version(self) -> int:
        version: int = self._db.value("PRAGMA data_version")
        return version


def _receive_hints(sock: socket.socket, on_hint: OnDueHint, on_room_hint: Callable[[], None]) -> None:
    """Read all datagrams as one hint with the earliest time, and one more if there are messages."""
    earliest: int | None = None
    has_messages = False
    try:
        while True:
            text = sock.recv(64)
            if text.startswith(ROOM_HINT.encode()):
                has_messages = True
                continue
            # Every program of this user may write to the socket: what is not a number means "check now".
            due = int(text) if text.isdigit() else 0
            earliest = due if earliest is None else min(due, earliest)
    except BlockingIOError:
        pass
    if has_messages:
        on_room_hint()
    if earliest is not None:
        on_hint(earliest)


def _receive_ticket_hints(sock: socket.socket, on_hint: OnTicketHint) -> None:
    received = 0
    try:
        while True:
            ticket, _, after = sock.recv(128).decode("ascii", "replace").partition(" ")
            on_hint(ticket, int(after) if after.isdigit() else 0)
            received += 1
    except BlockingIOError:
        pass
    if received >= SOCKET_QUEUE_LIMIT:
        on_hint("", 0)


@contextlib.contextmanager
def _listening_socket(on_readable: Callable[[socket.socket], None]) -> Iterator[str]:
    """A datagram socket that the running loop reads. Yields its path."""
    sock, address = _bind_socket()
    loop = asyncio.get_running_loop()
    loop.add_reader(sock.fileno(), on_readable, sock)
    try:
        yield address
    finally:
        loop.remove_reader(sock.fileno())
        sock.close()
        with contextlib.suppress(OSError):
            os.unlink(address)


def _bind_socket() -> tuple[socket.socket, str]:
    folder = Path(tempfile.gettempdir()) / f"drumbeat-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    if found.st_uid != os.getuid() or found.st_mode & 0o077 or folder.is_symlink():
        raise ConfigError(f"{folder} must be a folder that only this user can enter: remove it")
    _remove_dead_sockets(folder)
    address = str(folder / f"{os.getpid()}-{os.urandom(6).hex()}")
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        sock.setblocking(False)
        sock.bind(address)
    except OSError as error:
        sock.close()
        raise ConfigError(f"cannot listen at {address}: {error}; choose a shorter TMPDIR") from error
    return sock, address


def _remove_dead_sockets(folder: Path) -> None:
    """Remove the sockets of killed processes."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as caller:
        for address in folder.iterdir():
            try:
                caller.connect(str(address))
            except ConnectionRefusedError:
                address.unlink(missing_ok=True)
            except OSError:
                continue  # it was just removed, or is not one of our sockets
