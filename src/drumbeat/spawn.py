"""Fresh Python processes, and what is known of their death. Spawned, never forked: a child shares nothing but a socket.

    parent                                        child
    spawn(target, arguments)  --- exec --->       begin(descriptor)
    socket                    --- Order ---->     finds modules as the parent does, calls target(socket, **arguments)
    Watch                     <-- death ----      exit code, signal

Each child leads a process group of its own: what the terminal sends to the parent's group does not reach it, and what its
handlers start can be ended together with it. The end of the socket tells each side that the other is gone. A child that must
not outlive its parent also has a lifeline, a pipe that nobody writes to: when the parent's end closes, for whatever reason, the
kernel kills the child's whole group, though it may be deep in C code and deaf to everything else (Linux; elsewhere the child's
own reader of the socket does it). This module knows nothing of jobs.
"""

import asyncio
import fcntl
import importlib
import io
import logging
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec

from drumbeat import logs

_LENGTH = struct.Struct(">I")
# The folder of this package comes first: a file called drumbeat.py in the current folder must not be taken for it.
_BOOT = "import sys; sys.path.insert(0, {root!r}); from drumbeat.spawn import begin; begin({descriptors})"
_ROOT = str(Path(__file__).parents[1])
MAIN = "__main__"
EXIT_ORPHANED = 1
EXIT_UNKNOWN = 255
EXIT_POLL_INTERVAL = 0.05
"""How often a child is looked for where nothing tells of its death: no pidfd_open, no waitid (macOS before Python 3.13)."""


class LogSettings(msgspec.Struct, frozen=True):
    level: str
    format: Literal["text", "json"]


class SpawnRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What a new process is told first."""

    target: str
    """module:function; it is called with the socket and the arguments, and returns the exit code."""
    arguments: dict[str, Any]
    path: list[str]
    argv: list[str]
    cwd: str
    logs: LogSettings | None
    """How the parent logs, if it logs in our own way."""
    main: dict[str, str]
    """How to make the parent's main module: what multiprocessing calls init_main_from_path or init_main_from_name."""


class Spawned(NamedTuple):
    process: subprocess.Popen[bytes]
    link: socket.socket
    lifeline: io.FileIO
    """Closing it kills a process that dies with its parent."""


def spawn(
    target: str,
    arguments: Mapping[str, Any],
    *,
    label: str,
    with_main: bool = False,
    dies_with_parent: bool = False,
    cwd: str | None = None,
) -> Spawned:
    """Start a Python that calls target(socket, prepare, **arguments).

    `label` is what people see in the list of processes. `with_main`: it needs the parent's own script, for its app. `folder`:
    where it starts; else where we are.
    """
    cwd = os.getcwd() if cwd is None else cwd
    reopen_streams()  # else the child would take one end of the socket for its output
    ours, theirs = socket.socketpair()
    theirs_of_pipe, ours_of_pipe = (io.FileIO(end, mode) for end, mode in zip(os.pipe(), "rw", strict=True))
    descriptors = [theirs.fileno(), *([theirs_of_pipe.fileno()] if dies_with_parent else [])]
    with theirs, theirs_of_pipe:
        try:
            process = subprocess.Popen(
                [*_command(descriptors), label],
                stdin=subprocess.DEVNULL,
                pass_fds=descriptors,
                process_group=0,
                cwd=cwd,
            )
        except BaseException:
            ours.close()
            ours_of_pipe.close()
            raise
    order = SpawnRequest(
        target=target,
        arguments=dict(arguments),
        # A path entry of '' means the current folder, wherever that will be.
        path=[entry or cwd for entry in sys.path],
        argv=sys.argv,
        cwd=cwd,
        logs=_current_log_settings(),
        main=_main_module_data() if with_main else {},
    )
    with suppress(BrokenPipeError, ConnectionResetError):  # it died already: whoever watches it is told
        send(ours, msgspec.json.encode(order))
    return Spawned(process, ours, ours_of_pipe)


def reopen_streams() -> list[int]:
    """Open those of the descriptors 0 to 2 on /dev/null that the program has closed, and say which."""
    closed = []
    for number in (0, 1, 2):
        try:
            fcntl.fcntl(number, fcntl.F_GETFD)  # the cheapest question
        except OSError:
            opened = os.open(os.devnull, os.O_RDWR)
            if opened != number:
                os.dup2(opened, number)
                os.close(opened)
            os.set_inheritable(number, True)
            closed.append(number)
    return closed


def _command(descriptors: list[int]) -> list[str]:
    flags: list[str] = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
    return [
        sys.executable,
        *flags,
        "-c",
        _BOOT.format(root=_ROOT, descriptors=", ".join(map(str, descriptors))),
    ]


def _main_module_data() -> dict[str, str]:
    # Here, as below: programs that never start a process need not wait for this import.
    from multiprocessing.spawn import get_preparation_data

    known = get_preparation_data(MAIN)
    return {key: known[key] for key in ("init_main_from_name", "init_main_from_path") if key in known}


def _current_log_settings() -> LogSettings | None:
    """How this process logs, if that was set up by `logs.configure`; else it is the user's own business, in every process."""
    for handler in logging.getLogger().handlers:
        if isinstance(handler.formatter, logs.TextLines | logs.JsonLines):
            level = logging.getLevelName(logging.getLogger("drumbeat").level).lower()
            return LogSettings(level, "json" if isinstance(handler.formatter, logs.JsonLines) else "text")
    return None


def begin(descriptor: int, lifeline: int | None = None) -> None:
    """The first function of a spawned process; the last as well."""
    if lifeline is not None:
        _die_with_parent(lifeline)
    os.set_inheritable(descriptor, False)
    link = socket.socket(fileno=descriptor)
    text = receive(link)
    if text is None:
        os._exit(1)
    order = msgspec.json.decode(text, type=SpawnRequest)
    sys.path[:] = order.path
    sys.argv[:] = order.argv
    if order.logs is not None:
        logs.configure(order.logs.level, order.logs.format)
    module, _, function = order.target.partition(":")
    target: Callable[..., int] = getattr(importlib.import_module(module), function)
    sys.exit(target(link, prepare=lambda: _import_parent_main(order), **order.arguments))


def _die_with_parent(lifeline: int) -> None:
    """Have the kernel kill this process's group when the other end of the pipe closes."""
    os.set_inheritable(lifeline, False)
    if hasattr(fcntl, "F_SETSIG"):
        fcntl.fcntl(lifeline, fcntl.F_SETOWN, -os.getpgrp())
        fcntl.fcntl(lifeline, fcntl.F_SETSIG, signal.SIGKILL)
        fcntl.fcntl(lifeline, fcntl.F_SETFL, fcntl.fcntl(lifeline, fcntl.F_GETFL) | os.O_ASYNC)
    # One that closed before this is seen by the first read of the socket, which has closed as well.


def _import_parent_main(order: SpawnRequest) -> None:
    """Make the parent's script known here as `__main__`. It runs that script, so it is left to the target to call it."""
    from multiprocessing.spawn import prepare

    prepare({"sys_path": order.path, "dir": order.cwd, **order.main})


def send(link: socket.socket, frame: bytes) -> None:
    """Write one frame; blocks until the kernel has it."""
    link.sendall(_LENGTH.pack(len(frame)) + frame)


def send_to_parent(link: socket.socket, frame: bytes) -> None:
    """Write one frame from the child to its parent. Ends this process, with one line, if the parent is gone."""
    try:
        send(link, frame)
    except (BrokenPipeError, ConnectionResetError):
        sys.stderr.write(f"{sys.argv[0]}: the process that started this one ({os.getpid()}) is gone: leaving\n")
        sys.exit(EXIT_ORPHANED)


def receive(link: socket.socket) -> bytes | None:
    """Read one frame; None when the other side is gone."""
    head = _receive_exactly(link, _LENGTH.size)
    return None if head is None else _receive_exactly(link, _LENGTH.unpack(head)[0])


def _receive_exactly(link: socket.socket, size: int) -> bytes | None:
    parts: list[bytes] = []
    while size:
        try:
            part = link.recv(min(size, 1 << 20))
        except OSError:
            return None
        if not part:
            return None
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


class FramePipe:
    """The parent's end of the socket, on its loop."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def connect(cls, link: socket.socket) -> "FramePipe":
        return cls(*await asyncio.open_unix_connection(sock=link))

    def send(self, frame: bytes) -> None:
        """Never waits: frames to children are few and small."""
        self._writer.write(_LENGTH.pack(len(frame)) + frame)

    async def receive(self) -> bytes | None:
        """The next frame; None when the child's side is closed."""
        try:
            size = _LENGTH.unpack(await self._reader.readexactly(_LENGTH.size))[0]
            return await self._reader.readexactly(size)
        except (asyncio.IncompleteReadError, OSError):
            return None

    def abort(self) -> None:
        self._writer.transport.abort()


class ExitWatcher:
    """Learn of a process's death on the running loop, once, and reap it. The process must not be waited for elsewhere."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self._loop = asyncio.get_running_loop()
        self._reaping = threading.Lock()
        self._code: int | None = None
        """Its exit code, once it is reaped: from then on its number may be somebody else's."""
        self.exited: asyncio.Future[int] = self._loop.create_future()
        """Its exit code; minus the signal's number if one killed it."""
        if hasattr(os, "pidfd_open"):
            self._descriptor = os.pidfd_open(process.pid)
            self._loop.add_reader(self._descriptor, self._reap_exited)
        else:
            self._descriptor = -1
            wait = self._wait_for_exit if hasattr(os, "waitid") else self._poll_exit
            threading.Thread(target=wait, name="drumbeat-watch", daemon=True).start()

    @property
    def is_alive(self) -> bool:
        return not self.exited.done()

    def kill(self) -> None:
        """Kill it and everything of its group, at once. Harmless when it is dead."""
        with self._reaping:
            if self._code is None:
                # Not reaped yet, so neither its pid nor its group's number can belong to somebody else.
                _kill_group(self._process.pid)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the process alone. Harmless when it is dead."""
        with self._reaping, suppress(ProcessLookupError):
            if self._code is None:
                os.kill(self._process.pid, number)

    def _wait_for_exit(self) -> None:
        # Without reaping: that is done on the loop, after the group has been killed.
        with suppress(ChildProcessError):  # the program waits for every child itself: `_look` finds out
            os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOWAIT)
        self._schedule_reap()

    def _poll_exit(self) -> None:
        never = threading.Event()
        while self._code is None:
            never.wait(EXIT_POLL_INTERVAL)
            with self._reaping:
                self._code = _reap_by_waitpid(self._process.pid, os.WNOHANG)
        self._schedule_reap()

    def _schedule_reap(self) -> None:
        with suppress(RuntimeError):  # the loop is closed: nobody wants to know
            self._loop.call_soon_threadsafe(self._reap_exited)

    def _reap_exited(self) -> None:
        if self._descriptor >= 0:
            self._loop.remove_reader(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = -1
        if self._code is None:
            self._code = _reap(self._process.pid)
        self._process.returncode = self._code
        if not self.exited.cancelled():
            self.exited.set_result(self._code)


def _reap(pid: int) -> int:
    """Reap a child that is dead, or about to be."""
    if not hasattr(os, "waitid"):
        return _reap_by_waitpid(pid) or 0
    try:
        found = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        if found is None or found.si_code != os.CLD_EXITED or found.si_status != 0:
            # What it had started is without its parent now, and goes on with a job that somebody else will run. Killed
            # before the leader is reaped: as long as it is not, the number is that of this group.
            _kill_group(pid)
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    except ChildProcessError:
        return EXIT_UNKNOWN  # the program ignores SIGCHLD, or waits for every child itself


def _reap_by_waitpid(pid: int, options: int = 0) -> int | None:
    """The same with what exists everywhere; with WNOHANG None is returned while the child lives. It cannot look without
    reaping, so the group is killed right after: the number of a process is not given away again at once."""
    try:
        found, status = os.waitpid(pid, options)
    except ChildProcessError:
        return EXIT_UNKNOWN
    if not found:
        return None
    if status:
        _kill_group(pid)
    return os.waitstatus_to_exitcode(status)


def _kill_group(leader: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, signal.SIGKILL)


def exit_with_group() -> None:
    """End this process at once, with everything that it has started and that has not left its group."""
    if os.getpgrp() == os.getpid():
        _kill_group(os.getpid())
    os._exit(1)


def describe_exit(exit_code: int) -> str:
    """An exit code for people: `SIGKILL`, `exit code 3`."""
    if exit_code >= 0:
        return f"exit code {exit_code}"
    try:
        return signal.Signals(-exit_code).name
    except ValueError:
        return f"signal {-exit_code}"
