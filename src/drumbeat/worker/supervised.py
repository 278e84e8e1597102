"""The first function of a worker process that a supervisor has started.

It puts the supervisor's words into those of a plain worker: the end of the socket is a SIGTERM. What keeps the program from
starting at all is said over the socket, so that the supervisor tells it once and not each worker for itself.
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
from drumbeat.worker.main import run

log = logging.getLogger(__name__)

EXIT_NOT_STARTED = 1
EXIT_WRONG = 2
WORDS_LIMIT = 60_000


def main(link: socket.socket, *, prepare: Callable[[], None], ref: str, flags: dict[str, Any], marks_path: str) -> int:
    """Work until told to stop. Returns the exit code."""
    threading.Thread(target=_drain_when_orphaned, args=[link], name="drumbeat-lifeline", daemon=True).start()
    try:
        app = appref.load(ref, prepare=prepare)
        return run(app, app.configure(flags), ref=ref, marks_path=marks_path)
    except (ConfigError, SchemaOutOfDate) as error:
        return _say(link, error)
    except BaseExceptionGroup as group:
        if (failed := group.subgroup(StartFailed)) is not None:
            # Not said to the supervisor, who would give up: the next start may succeed, and it waits longer each time.
            log.error("a start-up task failed: this process leaves", extra={"reason": str(_first(failed))})
            return EXIT_NOT_STARTED
        if (known := group.subgroup((ConfigError, SchemaOutOfDate))) is None:
            raise
        return _say(link, _first(known))


def _drain_when_orphaned(link: socket.socket) -> None:
    try:
        while link.recv(1):
            pass
    except OSError:
        pass
    os.kill(os.getpid(), signal.SIGTERM)


def _say(link: socket.socket, error: BaseException) -> int:
    try:
        link.sendall(str(error).encode(errors="replace")[:WORDS_LIMIT])
    except OSError:  # the supervisor is gone: then it is told here
        log.error("this process cannot start, and its supervisor is gone", extra={"reason": str(error)})
    return EXIT_WRONG


def _first(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
