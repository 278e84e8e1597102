"""Enqueues where Python has what it has on Windows: `python without_posix.py URL async sync run serve`.

Modules of Python and of the drivers are imported first: on Windows they have ways of their own.
"""

import asyncio
import multiprocessing.spawn
import os
import signal
import socket
import subprocess
import sys
from typing import Any

import asyncpg
import click
import msgspec
import redis.asyncio
import redis.asyncio.cluster

HIDDEN = {"fcntl", "resource", "pwd", "grp", "termios", "tty", "pty", "syslog", "curses", "readline"}
PRELOADED = (asyncpg, multiprocessing.spawn, click, msgspec, redis.asyncio.cluster, subprocess)


class NoPosix:
    """A finder that finds none of them."""

    def find_spec(self, name: str, *_: Any) -> None:
        if name in HIDDEN:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


for each in HIDDEN:
    sys.modules.pop(each, None)
sys.meta_path.insert(0, NoPosix())
for module, names in {
    os: "fork register_at_fork getuid geteuid getgid killpg getpgrp setpgid fchmod statvfs O_CLOEXEC posix_fallocate pidfd_open"
    " waitid fdatasync sysconf uname WNOHANG tcsetpgrp",
    signal: "SIGKILL SIGCHLD SIGHUP SIGQUIT SIGUSR1 SIGUSR2 SIGTTOU pthread_sigmask sigwait",
    socket: "SO_REUSEPORT",
}.items():
    for name in names.split():
        if hasattr(module, name):
            delattr(module, name)


def refuse(*_: Any) -> None:
    raise NotImplementedError  # as the loop of Windows does


loop_class: Any = asyncio.SelectorEventLoop
loop_class.add_signal_handler = loop_class.create_unix_connection = refuse

from drumbeat import Drumbeat, DrumbeatError  # noqa: E402

app = Drumbeat(sys.argv[1])


@app.task
async def greet(name: str) -> str:
    return f"Hello, {name}!"


async def enqueue() -> None:
    async with app:
        job = await greet.enqueue("Windows")
        print(await job.result(timeout=30))


def do(what: str) -> None:
    match what:
        case "run":
            app.run()
        case "serve":
            asyncio.run(app.serve())
        case "sync":
            print(greet.enqueue_sync("Windows").result(timeout=30))
        case _:
            asyncio.run(enqueue())


if __name__ == "__main__":
    for word in sys.argv[2:]:
        try:
            do(word)
        except DrumbeatError as error:
            print(f"{type(error).__name__}: {error}")
