"""Hints across processes: a datagram to each living worker, and a look at the file's version beneath.

    writer --commit--> Announcer --datagram, text of the smallest run_at--> socket of each worker --> hear(run_at)
    writer --commit--> Announcer --datagram, "room"--> socket of each worker that has messages --> its room listeners
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
from collections.abc import AsyncIterator, Callable, Iterable
from pathlib import Path
from typing import Protocol

from drumbeat.clock import SYSTEM
from drumbeat.errors import ConfigError
from drumbeat.store.protocol.wake import Given
from drumbeat.store.sqlite import rows
from drumbeat.store.sqlite.connection import Connection, translated
from drumbeat.store.sqlite.place import Identity

BURST_S = 0.002
LOOK_S = 0.05
MANY = 8
"""The kernel keeps about ten datagrams for a socket: after so many at once some may have been lost."""
Hear = Callable[[int], object]
HearTicket = Callable[[str, int], None]
HearRoom = Callable[[str], None]
Call = tuple[str, str, int]
"""Where to, which ticket, and in how many microseconds its owner should look at it; or ROOM: there are messages."""
ROOM = "room"


class Announcer:
    """Tells workers of other processes; lives on the writer's thread, but for `tell_here`."""

    def __init__(self, addresses: str) -> None:
        self._addresses = addresses
        self._socket: socket.socket | None = None
        self._pending: int | None = None
        self._known: list[str] = []
        self._sent_at = float("-inf")
        self.listeners: dict[str, Hear] = {}
        """Listeners of this very store, by their address: told without a detour. Changed on the loop's thread only."""

    def tell_here(self, due: int) -> None:
        """On the loop's thread: our own listeners."""
        for hear in list(self.listeners.values()):
            hear(due)

    def tell(self, due: int, db: Connection) -> None:
        """Send, or keep for the end of the burst."""
        # Only a hint: what was committed is committed, also if nobody can be told.
        with contextlib.suppress(sqlite3.Error):
            self._known = rows.texts(db.value(self._addresses))
        self._pending = due if self._pending is None else min(due, self._pending)
        if SYSTEM.monotonic() - self._sent_at >= BURST_S:
            self.flush()

    def call(self, calls: Iterable[Call]) -> None:
        """Tell the owners of tickets, at once: each hint is for one."""
        for address, ticket, after in calls:
            self._send(f"{ticket} {after}".encode(), [address])

    def pause(self) -> float | None:
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
        self._send(text, (address for address in self._known if address not in own))

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


class Ringer(Protocol):
    """The writer, as this module needs it."""

    identity: Identity | None

    async def ring(self, run_at: int) -> None: ...


class SqliteWake:
    """The listening end, on the loop."""

    def __init__(self, path: Path, announcer: Announcer, writer: Ringer) -> None:
        self._path = path
        self._announcer = announcer
        self._writer = writer
        self._in_rooms: list[HearRoom] = []

    async def tell(self, run_at: int) -> None:
        await self._writer.ring(run_at)

    def forward(self, tell: Callable[[int], bool]) -> None:
        self._announcer.listeners[""] = tell

    @contextlib.asynccontextmanager
    async def listen(self, hear: Hear, given: Given | None = None) -> AsyncIterator[str | None]:
        """Call `hear(run_at)` for every hint; gives the path of our socket."""
        with translated(self._path):
            # It is asked on the loop's own thread, which must not wait for anybody's lock.
            watcher = _VersionWatcher(Connection(self._path, read_only=True, busy=0), hear, self._writer)
        ear, address = _bound_socket()
        loop = asyncio.get_running_loop()
        loop.add_reader(ear.fileno(), _hear_all, ear, hear, self._hear_room)
        self._announcer.listeners[address] = hear
        watcher.start(loop)
        try:
            yield address
        finally:
            watcher.stop()
            del self._announcer.listeners[address]
            loop.remove_reader(ear.fileno())
            ear.close()
            with contextlib.suppress(OSError):
                os.unlink(address)

    @contextlib.asynccontextmanager
    async def listen_tickets(self, hear: HearTicket) -> AsyncIterator[str | None]:
        """Call `hear(ticket, after)` for every hint; gives the path of our socket."""
        ear, address = _bound_socket()
        loop = asyncio.get_running_loop()
        loop.add_reader(ear.fileno(), _hear_tickets, ear, hear)
        try:
            yield address
        finally:
            loop.remove_reader(ear.fileno())
            ear.close()
            with contextlib.suppress(OSError):
                os.unlink(address)

    @contextlib.asynccontextmanager
    async def listen_rooms(self, hear: HearRoom) -> AsyncIterator[None]:
        """The hints come to the socket of `listen`, whose address stands in the instance's row."""
        self._in_rooms.append(hear)
        try:
            yield
        finally:
            self._in_rooms.remove(hear)

    def _hear_room(self) -> None:
        for hear in list(self._in_rooms):
            hear("")


class _VersionWatcher:
    """Looks at data_version, which changes with every commit of another connection. It takes some microseconds."""

    def __init__(self, db: Connection, hear: Hear, writer: Ringer) -> None:
        self._db = db
        self._hear = hear
        self._writer = writer
        self._seen = self._look()
        self._timer: asyncio.TimerHandle | None = None

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = loop.call_later(LOOK_S, self._tick, loop)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if (identity := self._writer.identity) is not None and identity.is_lost:
            self._db.abandon()
        else:
            self._db.close()

    def _tick(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = loop.call_later(LOOK_S, self._tick, loop)
        # A store that cannot be read is found out by whoever reads it next, and told there.
        with contextlib.suppress(sqlite3.Error):
            version = self._look()
            if version != self._seen:
                self._seen = version
                self._hear(0)

    def _look(self) -> int:
        version: int = self._db.value("PRAGMA data_version")
        return version


def _hear_all(ear: socket.socket, hear: Hear, hear_room: Callable[[], None]) -> None:
    """Everything that lies in the socket is one hint: the earliest moment; and one more if there are messages."""
    earliest: int | None = None
    has_messages = False
    try:
        while True:
            text = ear.recv(64)
            if text.startswith(ROOM.encode()):
                has_messages = True
                continue
            # Anybody of this user may write to the socket: what is no number means "look".
            due = int(text) if text.isdigit() else 0
            earliest = due if earliest is None else min(due, earliest)
    except BlockingIOError:
        pass
    if has_messages:
        hear_room()
    if earliest is not None:
        hear(earliest)


def _hear_tickets(ear: socket.socket, hear: HearTicket) -> None:
    heard = 0
    try:
        while True:
            ticket, _, after = ear.recv(128).decode("ascii", "replace").partition(" ")
            hear(ticket, int(after) if after.isdigit() else 0)
            heard += 1
    except BlockingIOError:
        pass
    if heard >= MANY:
        hear("", 0)


def _bound_socket() -> tuple[socket.socket, str]:
    folder = Path(tempfile.gettempdir()) / f"drumbeat-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    if found.st_uid != os.getuid() or found.st_mode & 0o077 or folder.is_symlink():
        raise ConfigError(f"{folder} must be a folder that only this user can enter: remove it")
    _sweep(folder)
    address = str(folder / f"{os.getpid()}-{os.urandom(6).hex()}")
    ear = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        ear.setblocking(False)
        ear.bind(address)
    except OSError as error:
        ear.close()
        raise ConfigError(f"cannot listen at {address}: {error}; choose a shorter TMPDIR") from error
    return ear, address


def _sweep(folder: Path) -> None:
    """Remove the sockets that killed processes left behind: nobody answers there any more."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as caller:
        for address in folder.iterdir():
            try:
                caller.connect(str(address))
            except ConnectionRefusedError:
                address.unlink(missing_ok=True)
            except OSError:
                continue  # it has just gone, or is no socket of ours
