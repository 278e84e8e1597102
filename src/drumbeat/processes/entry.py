"""The child's side: the first function of a spawned process, and the watch on its parent."""

import fcntl
import importlib
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable

import msgspec

from drumbeat import logs
from drumbeat.processes.exit_codes import EXIT_ORPHANED
from drumbeat.processes.frames import receive
from drumbeat.processes.spawn import SpawnRequest


def begin(descriptor: int, lifeline: int | None = None) -> None:
    """Run the target that the parent names, and exit with the code that it returns."""
    if lifeline is not None:
        _die_with_parent(lifeline)
    os.set_inheritable(descriptor, False)
    link = socket.socket(fileno=descriptor)
    text = receive(link)
    if text is None:
        os._exit(EXIT_ORPHANED)
    request = msgspec.json.decode(text, type=SpawnRequest)
    sys.path[:] = request.path
    sys.argv[:] = request.argv
    if request.logs is not None:
        logs.configure(request.logs.level, request.logs.format)
    module, _, function = request.target.partition(":")
    target: Callable[..., int] = getattr(importlib.import_module(module), function)
    sys.exit(target(link, prepare=lambda: _import_parent_main(request), **request.arguments))


def _die_with_parent(lifeline: int) -> None:
    """Have the kernel kill this process's group when the other end of the pipe closes."""
    os.set_inheritable(lifeline, False)
    if hasattr(fcntl, "F_SETSIG"):
        fcntl.fcntl(lifeline, fcntl.F_SETOWN, -os.getpgrp())
        fcntl.fcntl(lifeline, fcntl.F_SETSIG, signal.SIGKILL)
        fcntl.fcntl(lifeline, fcntl.F_SETFL, fcntl.fcntl(lifeline, fcntl.F_GETFL) | os.O_ASYNC)
    # If it closed before this, the first read of the socket sees that: both close together.


def _import_parent_main(request: SpawnRequest) -> None:
    """Make the parent's script available as `__main__`. It runs that script, so the target decides when to call this."""
    from multiprocessing.spawn import prepare  # here: slow, and most children do not need it

    prepare({"sys_path": request.path, "dir": request.cwd, **request.main})


def terminate_self() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


def watch_parent(link: socket.socket, on_gone: Callable[[], None] = terminate_self) -> None:
    """Start a daemon thread that calls `on_gone` when the parent closes its end of the socket, or dies."""

    def watch() -> None:
        try:
            while link.recv(1):
                pass
        except OSError:
            pass
        on_gone()

    threading.Thread(target=watch, name="drumbeat-parent-watch", daemon=True).start()
