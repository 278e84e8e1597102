"""One worker process, as its supervisor sees it: its journal after a crash, its health while it lives.

It sends frames over its socket: a `StartError` if it cannot start, and a `ProcessHealth` every second where somebody wants to
know.
"""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress
from pathlib import Path

import msgspec

from drumbeat import appref
from drumbeat.clock import Clock
from drumbeat.core.claim import ClaimRef
from drumbeat.ids import InstanceId
from drumbeat.processes.frames import FrameBuffer, send
from drumbeat.processes.health import ProcessHealth
from drumbeat.processes.managed import MAX_MESSAGE_BYTES, ManagedProcess
from drumbeat.settings import Settings
from drumbeat.worker.crash_journal import CrashJournal


class StartError(msgspec.Struct, frozen=True, tag="error"):
    """The program or its settings are wrong: the supervisor reports it once for all."""

    message: str


_DECODER = msgspec.json.Decoder(ProcessHealth | StartError)


class ParentOutlet:
    """A `HealthOutlet` of the worker process: its supervisor."""

    interval = None

    def __init__(self, link: socket.socket) -> None:
        self._link = link

    def tell(self, report: ProcessHealth) -> None:
        with suppress(OSError):  # the supervisor is gone: this process drains
            send(self._link, msgspec.json.encode(report))

    def close(self) -> None:
        """Its exit says it."""


class WorkerProcess(ManagedProcess):
    """It may outlive us: it has jobs to finish."""

    def __init__(
        self, ref: str, settings: Settings, journal_path: Path, clock: Clock, *, reports_health: bool = False
    ) -> None:
        super().__init__(
            "drumbeat.worker.supervised_worker:main",
            {
                "ref": ref,
                "flags": appref.to_flags(settings),
                "journal_path": str(journal_path),
                "reports_health": reports_health,
            },
            label=f"drumbeat-worker {ref}",
            with_main=appref.needs_main(ref),
            clock=clock,
        )
        self.was_killed = False
        self.start_error: str | None = None
        self._health = ProcessHealth(reasons=("starting",))
        self._heard_at: float | None = None
        self._dead_after = settings.dead_after
        self._clock = clock
        self._journal_path = journal_path
        self._buffer = FrameBuffer()
        self.link.setblocking(False)
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self.link, self._read)

    def report(self) -> ProcessHealth:
        """What it last said of itself; not live if that was long ago. On any thread."""
        heard_at = self._heard_at
        if heard_at is not None and (silence := self._clock.monotonic() - heard_at) >= self._dead_after:
            return ProcessHealth(live=False, reasons=(f"no report for {silence:.1f} s",))
        return self._health

    def read_journal(self) -> tuple[InstanceId | None, list[ClaimRef]]:
        """Its instance id and the jobs that it had started. Only once it is dead."""
        journal = CrashJournal.open(self._journal_path)
        if journal is None:
            return None, []
        found = journal.read()
        journal.close()
        self._journal_path.unlink(missing_ok=True)
        return found

    def close(self) -> None:
        while self._read():
            pass
        self._loop.remove_reader(self.link)
        super().close()

    def _read(self) -> bool:
        """Whether there may be more."""
        try:
            data = self.link.recv(MAX_MESSAGE_BYTES)
        except (BlockingIOError, InterruptedError):
            return False
        except OSError:
            data = b""
        if not data:
            self._loop.remove_reader(self.link)
            return False
        for frame in self._buffer.feed(data):
            message = _DECODER.decode(frame)
            if isinstance(message, StartError):
                self.start_error = message.message
            else:
                self._health, self._heard_at = message, self._clock.monotonic()
        return True
