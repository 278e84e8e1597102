"""Hints across processes: a datagram to each living worker, and a look at the file's version beneath.

    writer --commit--> SqliteNotifier --datagram, text of the smallest run_at--> socket of each worker --> hear(run_at)
    writer --commit--> SqliteNotifier --datagram, "room"--> socket of each worker that has messages --> its room listeners
    anybody --commit--> PRAGMA data_version changes ----------------------- looked at every 50 ms --> hear(0)

Datagrams make it quick, data_version makes it sure: it also sees commits of programs that know no datagrams. Both are only
hints. Bursts are joined: the first is sent at once, what follows within 2 ms goes out together at the end of the 2 ms, so
none is lost and a flood of enqueues is not a flood of datagrams. Polling the version every 5 ms would cost 1.2 % of a core.
"""

import asyncio
import contextlib
import os
import socket
import sqlite3
import tempfile
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from pathlib import Path
from typing import Protocol

from drumbeat.clock import SYSTEM
from drumbeat.errors import ConfigError
from drumbeat.store.protocol.wake import OnJob, OnRoom, Subscriber
from drumbeat.store.sqlite import rows
from drumbeat.store.sqlite.connection import SqliteConnection, translate_errors
from drumbeat.store.sqlite.file_checks import FileIdentity

BURST_S = 0.002
VERSION_POLL_S = 0.05
SOCKET_QUEUE_LIMIT = 8
"""The kernel keeps about ten datagrams for a socket: after so many at once some may have been lost."""
WakeHint = tuple[str, str, int]
"""Where to, which ticket, and in how many microseconds its owner should look at it; or ROOM: there are messages."""
ROOM_HINT = "room"


class SqliteNotifier:
    """Tells workers of other processes; lives on the writer's thread, but for `tell_here`."""

    def __init__(self, addresses_sql: str) -> None:
        self._addresses_sql = addresses_sql
        self._socket: socket.socket | None = None
        self._pending: int | None = None
        self._addresses: list[str] = []
        self._sent_at = float("-inf")
        self.listeners: dict[str, Callable[[int], object]] = {}
        """Listeners of this very store, by their address: told without a detour. Changed on the loop's thread only."""

    def notify_local(self, run_at: int) -> None:
        """On the loop's thread: our own listeners."""
        for hear in list(self.listeners.values()):
            hear(run_at)

    def notify(self, run_at: int, db: SqliteConnection) -> None:
        """Send, or keep for the end of the burst."""
        # Only a hint: what was committed is committed, also if nobody can be told.
        with contextlib.suppress(sqlite3.Error):
            self._addresses = rows.texts(db.value(self._addresses_sql))
        self._pending = run_at if self._pending is None else min(run_at, self._pending)
        if SYSTEM.monotonic() - self._sent_at >= BURST_S:
            self.flush()

    def send_hints(self, hints: Iterable[WakeHint]) -> None:
        """Tell the owners of tickets, at once: each hint is for one."""
        for address, ticket, after in hints:
            self._send(f"{ticket} {after}".encode(), [address])

    def flush_delay(self) -> float | None:
        """How long the writer may sleep before it must call `flush`."""
        if self._pending is None:
            return None
        return max(0.0, self._sent_at + BURST_S - SYSTEM.monotonic())

    def flush(self) -> None:
        if self._pending is None:
            return
        text = str(self._pending).encode()
        self._pending = None
        self._sent_at = SYSTEM.monotonic()
        own = self.listeners
        self._send(text, (address for address in self._addresses if address not in own))

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _send(self, text: bytes, addresses: Iterable[str]) -> None:
        if self._socket is None:
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            self._socket.setblocking(False)
        for address in addresses:
            # Full: it has hints enough. Gone: it died. Either way it, or whoever comes after it, polls.
            with contextlib.suppress(OSError):
                self._socket.sendto(text, address)


class NotifyingWriter(Protocol):
    """The writer, as this module needs it."""

    identity: FileIdentity | None

    async def notify(self, run_at: int) -> None: ...


class SqliteWake:
    """The receiving end, on the loop."""

    def __init__(self, path: Path, notifier: SqliteNotifier, writer: NotifyingWriter) -> None:
        self._path = path
        self._notifier = notifier
        self._writer = writer
        self._room_listeners: list[OnRoom] = []

    async def notify(self, run_at: int) -> None:
        await self._writer.notify(run_at)

    @contextlib.asynccontextmanager
    async def listen(self, subscriber: Subscriber) -> AsyncIterator[str | None]:
        """Gives the path of our socket. Room hints come to the socket for jobs, whose path stands in the instance's row."""
        with contextlib.ExitStack() as stack:
            if (on_room := subscriber.on_room) is not None:
                self._room_listeners.append(on_room)
                stack.callback(self._room_listeners.remove, on_room)
            address = None
            if subscriber.on_job is not None or subscriber.on_ticket is not None:
                address = stack.enter_context(self._receive_from_socket(subscriber))
            if address is not None and subscriber.on_job is not None:
                stack.enter_context(self._poll_version(subscriber.on_job))
                self._notifier.listeners[address] = subscriber.on_job
                stack.callback(self._notifier.listeners.pop, address)
            yield address

    @contextlib.contextmanager
    def _receive_from_socket(self, subscriber: Subscriber) -> Iterator[str]:
        sock, address = _bind_socket()
        loop = asyncio.get_running_loop()
        loop.add_reader(sock.fileno(), _receive_hints, sock, subscriber, self._notify_rooms)
        try:
            yield address
        finally:
            loop.remove_reader(sock.fileno())
            sock.close()
            with contextlib.suppress(OSError):
                os.unlink(address)

    @contextlib.contextmanager
    def _poll_version(self, on_job: OnJob) -> Iterator[None]:
        with translate_errors(self._path):
            # Read on the loop's own thread, which must not wait for a lock.
            poller = _DataVersionPoller(
                SqliteConnection(self._path, read_only=True, busy_timeout=0), on_job, self._writer
            )
        poller.start(asyncio.get_running_loop())
        try:
            yield
        finally:
            poller.stop()

    def _notify_rooms(self) -> None:
        for on_room in list(self._room_listeners):
            on_room("")


class _DataVersionPoller:
    """Looks at data_version, which changes with every commit of another connection. It takes some microseconds."""

    def __init__(self, db: SqliteConnection, on_change: OnJob, writer: NotifyingWriter) -> None:
        self._db = db
        self._on_change = on_change
        self._writer = writer
        self._last_version = self._read_version()
        self._timer: asyncio.TimerHandle | None = None

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = loop.call_later(VERSION_POLL_S, self._poll, loop)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if (identity := self._writer.identity) is not None and identity.is_lost:
            self._db.leak()
        else:
            self._db.close()

    def _poll(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = loop.call_later(VERSION_POLL_S, self._poll, loop)
        # A store that cannot be read is found out by whoever reads it next, and told there.
        with contextlib.suppress(sqlite3.Error):
            version = self._read_version()
            if version != self._last_version:
                self._last_version = version
                self._on_change(0)

    def _read_version(self) -> int:
        version: int = self._db.value("PRAGMA data_version")
        return version


def _receive_hints(sock: socket.socket, subscriber: Subscriber, on_messages: Callable[[], None]) -> None:
    """Read all datagrams of the socket. Jobs get one hint, the earliest; messages one; tickets one each."""
    earliest: int | None = None
    has_messages = False
    tickets = 0
    with contextlib.suppress(BlockingIOError):
        while True:
            text = sock.recv(128)
            if text.startswith(ROOM_HINT.encode()):
                has_messages = True
            elif subscriber.on_ticket is not None and not text.isdigit():
                ticket, _, after = text.decode("ascii", "replace").partition(" ")
                subscriber.on_ticket(ticket, int(after) if after.isdigit() else 0)
                tickets += 1
            else:
                # Every process of this user may write to the socket: what is no number means "look".
                due = int(text) if text.isdigit() else 0
                earliest = due if earliest is None else min(due, earliest)
    if has_messages:
        on_messages()
    if earliest is not None and subscriber.on_job is not None:
        subscriber.on_job(earliest)
    if tickets >= SOCKET_QUEUE_LIMIT and subscriber.on_ticket is not None:
        subscriber.on_ticket("", 0)


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
    """Remove the sockets that killed processes left behind: nobody answers there any more."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as caller:
        for address in folder.iterdir():
            try:
                caller.connect(str(address))
            except ConnectionRefusedError:
                address.unlink(missing_ok=True)
            except OSError:
                continue  # it has just gone, or is no socket of ours
