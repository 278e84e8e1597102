"""Process 1 of a container: passes signals on, reaps orphans, and exits as the program does.

The kernel hands every orphan of a container to its process 1, and keeps it as a zombie until that one reaps it. Whoever reaps
all children would take the exit codes of those that others wait for (`subprocess`, our supervisor). So process 1 does nothing
else, and the program is its only child.
"""

import os
import signal
import sys
from contextlib import suppress
from typing import NoReturn

FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)


def run_under_init() -> None:
    """Called first by commands that run for long. In process 1 it does not return: the command goes on in a child."""
    if os.getpid() == 1:
        fork_under_init()


def fork_under_init() -> None:
    """Go on in a child; this process becomes its init, and does not return."""
    waited = {*FORWARDED, signal.SIGCHLD}
    # Blocked from before the fork, and fetched by sigwait: none is lost, none interrupts anything.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, waited)
    child = os.fork()
    if child == 0:
        _take_terminal()
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        return
    _serve(child, waited)


def _serve(child: int, waited: set[signal.Signals]) -> NoReturn:
    while True:
        number = signal.sigwait(waited)
        if number != signal.SIGCHLD:
            with suppress(ProcessLookupError):
                os.kill(child, number)
        elif (status := _reap_all(child)) is not None:
            code = os.waitstatus_to_exitcode(status)
            os._exit(code if code >= 0 else 128 - code)


def _reap_all(child: int) -> int | None:
    """Reap all that have ended. Returns the status of our child, if it is among them."""
    found = None
    with suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                break
            if pid == child:
                found = status
    return found


def _take_terminal() -> None:
    """Ctrl-C reaches the child once: from the terminal, and not from its init as well."""
    os.setpgid(0, 0)
    if sys.stdin is not None and sys.stdin.isatty():
        before = signal.signal(signal.SIGTTOU, signal.SIG_IGN)  # or taking it would stop us
        with suppress(OSError):
            os.tcsetpgrp(sys.stdin.fileno(), os.getpgrp())
        signal.signal(signal.SIGTTOU, before)
