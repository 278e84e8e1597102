"""Entry point of a worker process that a supervisor has started.

It translates the supervisor's signals into those of a plain worker: end of file on the socket becomes SIGTERM, and a second
SIGTERM follows when the drain timeout is long over, because the supervisor would have killed this process by then. An error
that prevents the start is sent over the socket, so that the supervisor reports it once instead of every worker.
"""

import logging
import os
import socket
import threading
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import msgspec

from drumbeat import appref
from drumbeat.errors import ConfigError, SchemaOutOfDate, StartFailed
from drumbeat.processes.entry import terminate_self, watch_parent
from drumbeat.processes.exit_codes import EXIT_CONFIG_ERROR, EXIT_NO_STORE, EXIT_NOT_STARTED
from drumbeat.processes.frames import send
from drumbeat.worker.main import first_of_group, run
from drumbeat.worker.worker_health import worker_health
from drumbeat.worker.worker_process import ParentOutlet, StartError

log = logging.getLogger(__name__)

MAX_ERROR_BYTES = 60_000
ORPHAN_KILL_DELAY = 10.0
"""Added to the drain timeout; an orphan that still lives then is interrupted."""
URGENT_TIMEOUT = 5.0


def main(
    link: socket.socket,
    *,
    prepare: Callable[[], None],
    ref: str,
    flags: dict[str, Any],
    journal_path: str,
    reports_health: bool,
) -> int:
    """Work until asked to stop. Returns the exit code."""
    orphan_exit = OrphanExit()
    watch_parent(link, orphan_exit.leave)
    try:
        app = appref.load(ref, prepare=prepare)
        settings = app.configure(flags)
        orphan_exit.drain = settings.drain
        with worker_health(settings, parent=ParentOutlet(link)) if reports_health else nullcontext() as health:
            return run(app._internals, settings, ref=ref, journal_path=journal_path, health=health)
    except (ConfigError, SchemaOutOfDate) as error:
        return _send_start_error(link, error)
    except BaseExceptionGroup as group:
        if (failed := group.subgroup(StartFailed)) is not None:
            # Not sent to the supervisor, which would give up: the next start may succeed, and it waits longer each time.
            log.error("a start-up task failed: this process exits", extra={"reason": str(first_of_group(failed))})
            return EXIT_NOT_STARTED
        if (known := group.subgroup((ConfigError, SchemaOutOfDate))) is None:
            raise
        return _send_start_error(link, first_of_group(known))


class OrphanExit:
    """Ends this process when its supervisor is gone: drain, interrupt, exit."""

    def __init__(self) -> None:
        self.drain: float | None = None
        """The drain timeout in seconds; None: unlimited."""

    def leave(self) -> None:
        terminate_self()
        if self.drain is None:
            return
        never = threading.Event()
        never.wait(self.drain + ORPHAN_KILL_DELAY)
        terminate_self()
        never.wait(URGENT_TIMEOUT)
        os._exit(EXIT_NO_STORE)


def _send_start_error(link: socket.socket, error: BaseException) -> int:
    try:
        message = str(error).encode(errors="replace")[:MAX_ERROR_BYTES].decode(errors="replace")
        send(link, msgspec.json.encode(StartError(message)))
    except OSError:  # the supervisor is gone
        log.error("this process cannot start, and its supervisor is gone", extra={"reason": str(error)})
    return EXIT_CONFIG_ERROR
