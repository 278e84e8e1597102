"""Hints to workers that a job or a message is there: a datagram to each process, with polling beneath.

    writer --commit--> SqliteNotifier --datagram, earliest run_at--> socket of each worker --> Subscriber.on_job(run_at)
    writer --commit--> SqliteNotifier --datagram, "room"--> socket of each worker that has messages --> Subscriber.on_room
    any commit --> PRAGMA data_version changes ----------------------- polled every 50 ms --> Subscriber.on_job(0)

Datagrams make it fast, data_version makes it reliable: it also sees commits of programs that send no datagrams. Both are only
hints. The first of a burst is sent at once; those that follow within 2 ms are sent as one at the end of the 2 ms, so that none
is lost and a flood of enqueues is no flood of datagrams. Polling the version every 5 ms would cost 1.2 % of a core.
"""

import asyncio
import contextlib
import os
import socket
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from functools import partial
from pathlib import Path

from drumbeat.clock import Clock
from drumbeat.errors import ConfigError
from drumbeat.ids import random_hex
from drumbeat.processes.scratch import scratch_folder
from drumbeat.store.protocol.wake import OnJob, OnRoom, Subscriber
from drumbeat.store.sqlite import rows
from drumbeat.store.sqlite.connection import SqliteConnection, translate_errors
from drumbeat.store.sqlite.file_checks import FileIdentity

BURST_S = 0.002
VERSION_POLL_S = 0.05
SOCKET_QUEUE_LIMIT = 8
"""The kernel queues about ten datagrams for a socket: if this many arrive at once, some may have been lost."""
WakeHint = tuple[str, str, int]
"""Address, ticket, and in how many microseconds its owner should check it; ROOM_HINT as ticket: there are messages."""
ROOM_HINT = "room"


class SqliteNotifier:
    """The sending end, on the writer's thread."""

    def __init__(self, addresses_sql: str, loop: asyncio.AbstractEventLoop, clock: Clock) -> None:
        self._addresses_sql = addresses_sql
        self._loop = loop
        self._clock = clock
        self._socket: socket.socket | None = None
        self._pending: int | None = None
        self._addresses: list[str] = []
        self._sent_at = float("-inf")
        self.listeners: dict[str, Callable[[int], object]] = {}
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
        if self._clock.monotonic() - self._sent_at >= BURST_S:
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
        return max(0.0, self._sent_at + BURST_S - self._clock.monotonic())

    def flush(self) -> None:
        if self._pending is None:
            return
        text = str(self._pending).encode()
        self._pending = None
        self._sent_at = self._clock.monotonic()
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
    """The receiving end, on the loop."""

    def __init__(
        self,
        path: Path,
        notifier: SqliteNotifier,
        clock: Clock,
        *,
        notify: Callable[[int], Awaitable[None]],
        identity: Callable[[], FileIdentity | None],
    ) -> None:
        self._path = path
        self._notifier = notifier
        self._clock = clock
        self._notify = notify
        self._identity = identity
        self._room_listeners: list[OnRoom] = []

    async def notify(self, run_at: int) -> None:
        await self._notify(run_at)

    @contextlib.asynccontextmanager
    async def listen(self, subscriber: Subscriber) -> AsyncIterator[str | None]:
        """Yields the path of the socket. Room hints come to the socket for jobs, whose path is in the instance's row."""
        on_job, on_room = subscriber.on_job, subscriber.on_room
        with contextlib.ExitStack() as stack:
            if on_room is not None:
                self._room_listeners.append(on_room)
                stack.callback(self._room_listeners.remove, on_room)
            address = None
            if on_job is not None or subscriber.on_ticket is not None:
                receive = partial(_receive_hints, subscriber=subscriber, on_messages=self._notify_rooms)
                address = stack.enter_context(_listening_socket(receive))
            if address is not None and on_job is not None:
                self._notifier.listeners[address] = on_job
                stack.callback(self._notifier.listeners.pop, address)
                if not self._clock.inline:
                    stack.callback(self._start_poller(on_job).stop)
            yield address

    def _start_poller(self, on_job: OnJob) -> "_DataVersionPoller":
        with translate_errors(self._path):
            # Used on the loop's thread, which must not wait for a lock.
            db = SqliteConnection(self._path, read_only=True, busy_timeout=0)
            poller = _DataVersionPoller(db, on_job, self._identity)
        poller.start(asyncio.get_running_loop())
        return poller

    def _notify_rooms(self) -> None:
        for on_notification in list(self._room_listeners):
            on_notification("")


class _DataVersionPoller:
    """Polls data_version, which changes with every commit of another connection. A poll takes some microseconds."""

    def __init__(self, db: SqliteConnection, on_change: OnJob, identity: Callable[[], FileIdentity | None]) -> None:
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


def _receive_hints(sock: socket.socket, subscriber: Subscriber, on_messages: Callable[[], None]) -> None:
    """Read all datagrams: as one hint for jobs, with the earliest time, one for messages, and one for each ticket."""
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
                # Every program of this user may write to the socket: what is not a number means "check now".
                due = int(text) if text.isdigit() else 0
                earliest = due if earliest is None else min(due, earliest)
    if has_messages:
        on_messages()
    if earliest is not None and subscriber.on_job is not None:
        subscriber.on_job(earliest)
    if tickets >= SOCKET_QUEUE_LIMIT and subscriber.on_ticket is not None:
        subscriber.on_ticket("", 0)


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
    folder = Path(scratch_folder()) / f"drumbeat-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    if found.st_uid != os.getuid() or found.st_mode & 0o077 or folder.is_symlink():
        raise ConfigError(f"{folder} must be a folder that only this user can enter: remove it")
    _remove_dead_sockets(folder)
    address = str(folder / f"{os.getpid()}-{random_hex(6)}")
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
