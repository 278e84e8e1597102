"""A terminal for the command line under test: a pty, what was written on it, and keys to press."""

import contextlib
import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.cli.command import PROGRAM, build_environment

TERMINAL_TIMEOUT = 30.0


class Terminal:
    def __init__(self, process: subprocess.Popen[bytes], fd: int) -> None:
        self.process = process
        self._fd = fd
        self.seen = ""

    def wait_for(self, text: str, *, times: int = 1) -> str:
        """Everything that was written, once this text has been written so often."""
        end = time.monotonic() + TERMINAL_TIMEOUT
        while self.seen.count(text) < times:
            left = end - time.monotonic()
            assert left > 0, f"{text!r} was not shown {times} times: {self.seen[-2000:]!r}"
            if select.select([self._fd], [], [], left)[0]:
                with contextlib.suppress(OSError):  # the other end was closed
                    self.seen += os.read(self._fd, 65_536).decode(errors="replace")
        return self.seen

    def press(self, keys: str) -> None:
        os.write(self._fd, keys.encode())

    def wait_exit_code(self) -> int:
        """Its exit code, once it has ended; what it said last is in `seen`."""
        code = self.process.wait(TERMINAL_TIMEOUT)
        with contextlib.suppress(OSError):  # nobody is at the other end any more
            while select.select([self._fd], [], [], 0)[0] and (rest := os.read(self._fd, 65_536)):
                self.seen += rest.decode(errors="replace")
        return code


@contextmanager
def terminal(*args: str, folder: Path, url: str = "", env: Mapping[str, str] | None = None) -> Iterator[Terminal]:
    """The real thing on a terminal of 120 columns and 40 lines; killed at the end if it is still there."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
    process = subprocess.Popen(
        [*PROGRAM, *args],
        cwd=folder,
        env=build_environment(TERM="xterm", **({"DRUMBEAT_URL": url} if url else {}), **(env or {})),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
        # So that Ctrl-C on this terminal is heard by this process.
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
    )
    os.close(theirs)
    try:
        yield Terminal(process, ours)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        os.close(ours)
