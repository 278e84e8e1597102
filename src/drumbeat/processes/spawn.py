"""Start a fresh Python process that calls a function. The protocol is drawn in `__init__.py`."""

import io
import logging
import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, NamedTuple, Required, TypedDict, Unpack

import msgspec

from drumbeat import logs
from drumbeat.processes.frames import send
from drumbeat.processes.standard_streams import reopen_streams

# The package's folder comes first: a file called drumbeat.py in the current folder must not be imported instead.
_BOOT = "import sys; sys.path.insert(0, {root!r}); from drumbeat.processes.entry import begin; begin({descriptors})"
_ROOT = str(Path(__file__).parents[2])
MAIN = "__main__"


class LogSettings(msgspec.Struct, frozen=True):
    level: str
    format: Literal["text", "json"]


class SpawnRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The first frame to a new process."""

    target: str
    """module:function; called with the socket and the arguments, returns the exit code."""
    arguments: dict[str, Any]
    path: list[str]
    argv: list[str]
    cwd: str
    logs: LogSettings | None
    """The parent's logging, if `logs.configure` set it up."""
    main: dict[str, str]
    """How to import the parent's main module: multiprocessing's init_main_from_path or init_main_from_name."""


class Spawned(NamedTuple):
    process: subprocess.Popen[bytes]
    link: socket.socket
    lifeline: io.FileIO | None
    """Closing it kills the process; None: it may outlive its parent."""


class SpawnOptions(TypedDict, total=False):
    label: Required[str]
    """Shown in the process list."""
    with_main: bool
    """The target needs the parent's script, because the app is in it."""
    dies_with_parent: bool
    cwd: str
    """Default: the current folder."""


def spawn(target: str, arguments: Mapping[str, Any], **options: Unpack[SpawnOptions]) -> Spawned:
    """Start a Python process that calls target(socket, prepare, **arguments)."""
    cwd = options.get("cwd") or os.getcwd()
    reopen_streams()  # else the child would take one end of the socket for its output
    ours, theirs = socket.socketpair()
    descriptors = [theirs.fileno()]
    lifeline = their_lifeline = None
    if options.get("dies_with_parent"):
        their_lifeline, lifeline = (io.FileIO(end, mode) for end, mode in zip(os.pipe(), "rw", strict=True))
        descriptors.append(their_lifeline.fileno())
    try:
        process = subprocess.Popen(
            [*_command(descriptors), options["label"]],
            stdin=subprocess.DEVNULL,
            pass_fds=descriptors,
            process_group=0,
            cwd=cwd,
        )
    except BaseException:
        ours.close()
        if lifeline is not None:
            lifeline.close()
        raise
    finally:
        theirs.close()
        if their_lifeline is not None:
            their_lifeline.close()
    request = SpawnRequest(
        target=target,
        arguments=dict(arguments),
        # A path entry of '' means the current folder, which may change.
        path=[entry or cwd for entry in sys.path],
        argv=sys.argv,
        cwd=cwd,
        logs=_current_log_settings(),
        main=_main_module_data() if options.get("with_main") else {},
    )
    with suppress(BrokenPipeError, ConnectionResetError):  # dead already: the exit watcher sees that
        send(ours, msgspec.json.encode(request))
    return Spawned(process, ours, lifeline)


def _command(descriptors: list[int]) -> list[str]:
    flags: list[str] = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
    return [
        sys.executable,
        *flags,
        "-c",
        _BOOT.format(root=_ROOT, descriptors=", ".join(map(str, descriptors))),
    ]


def _main_module_data() -> dict[str, str]:
    from multiprocessing.spawn import get_preparation_data  # here: slow, and most programs start no process

    known = get_preparation_data(MAIN)
    return {key: known[key] for key in ("init_main_from_name", "init_main_from_path") if key in known}


def _current_log_settings() -> LogSettings | None:
    """This process's logging if `logs.configure` set it up; otherwise the program configures it, in every process."""
    for handler in logging.getLogger().handlers:
        if isinstance(handler.formatter, logs.TextLines | logs.JsonLines):
            level = logging.getLevelName(logging.getLogger("drumbeat").level).lower()
            return LogSettings(level, "json" if isinstance(handler.formatter, logs.JsonLines) else "text")
    return None
