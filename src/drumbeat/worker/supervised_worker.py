"""The first function of a worker process that a supervisor has started.

It puts the supervisor's words into those of a plain worker: the end of the socket is a SIGTERM, and when the time to drain is
long over, a second one, as the supervisor would have killed us then. What keeps the program from starting at all is said over
the socket, so that the supervisor tells it once and not each worker for itself.
"""

import logging
import os
import signal
import socket
import threading
from collections.abc import Callable
from typing import Any

from drumbeat import appref
from drumbeat.errors import ConfigError, SchemaOutOfDate, StartFailed
from drumbeat.worker import EXIT_NO_STORE
from drumbeat.worker.main import run

log = logging.getLogger(__name__)

EXIT_NOT_STARTED = 1
EXIT_CONFIG_ERROR = 2
MAX_ERROR_BYTES = 60_000
ORPHAN_KILL_DELAY = 10.0
"""So long after its time to drain an orphan is in a hurry."""
URGENT_TIMEOUT = 5.0


def main(link: socket.socket, *, prepare: Callable[[], None], ref: str, flags: dict[str, Any], marks_path: str) -> int:
    """Work until told to stop. Returns the exit code."""
    lifeline = SupervisorWatch(link)
    lifeline.start()
    try:
        app = appref.load(ref, prepare=prepare)
        settings = app.configure(flags)
        lifeline.drain = settings.drain
        return run(app._internals, settings, ref=ref, marks_path=marks_path)
    except (ConfigError, SchemaOutOfDate) as error:
        return _send_start_error(link, error)
    except BaseExceptionGroup as group:
        if (failed := group.subgroup(StartFailed)) is not None:
            # Not said to the supervisor, who would give up: the next start may succeed, and it waits longer each time.
            log.error("a start-up task failed: this process leaves", extra={"reason": str(_first(failed))})
            return EXIT_NOT_STARTED
        if (known := group.subgroup((ConfigError, SchemaOutOfDate))) is None:
            raise
        return _send_start_error(link, _first(known))


class SupervisorWatch(threading.Thread):
    """Drains this process when its supervisor is gone, and sees to it that it ends."""

    def __init__(self, link: socket.socket) -> None:
        super().__init__(name="drumbeat-lifeline", daemon=True)
        self._link = link
        self.drain: float | None = None
        """None: as long as it takes."""

    def run(self) -> None:
        try:
            while self._link.recv(1):
                pass
        except OSError:
            pass
        os.kill(os.getpid(), signal.SIGTERM)
        if self.drain is None:
            return
        never = threading.Event()
        never.wait(self.drain + ORPHAN_KILL_DELAY)
        os.kill(os.getpid(), signal.SIGTERM)
        never.wait(URGENT_TIMEOUT)
        os._exit(EXIT_NO_STORE)


def _send_start_error(link: socket.socket, error: BaseException) -> int:
    try:
        link.sendall(str(error).encode(errors="replace")[:MAX_ERROR_BYTES])
    except OSError:  # the supervisor is gone: then it is told here
        log.error("this process cannot start, and its supervisor is gone", extra={"reason": str(error)})
    return EXIT_CONFIG_ERROR


def _first(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
