"""`manage.py drumbeat run --reload`: a worker that is restarted when a file of the project changes, for development.

    this process --starts--> manage.py drumbeat run --reload, with RUN_MAIN=true
         ^                        worker on the main thread, Django's reloader on another
         '---- exit code 3 <------'   a file has changed: the worker drains, as at SIGTERM

Unlike Django's server a worker is not cut off in the middle: its jobs would count as crashed. A worker that cannot start,
because of a syntax error, say, is started again after the next change.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import click
from django.apps import apps
from django.utils import autoreload

from drumbeat.cli.program import program
from drumbeat.clock import SystemClock

OPTION = "--reload"
EXIT_RELOAD = 3
DRAIN_SECONDS = 3
CHECK_INTERVAL = 1.0
STARTED_AT = "DRUMBEAT_RELOAD_STARTED_AT"
"""In the environment of the worker's process: when it was started, µs."""
_INSTALLED = ("site-packages", "dist-packages")


def run(arguments: Sequence[str], name: str) -> int:
    """Run these arguments, `run ...`, until stopped. Returns the exit code."""
    if os.environ.get(autoreload.DJANGO_AUTORELOAD_ENV) == "true":
        drain = [] if "--drain" in arguments else ["--drain", str(DRAIN_SECONDS)]
        # One process: a supervisor would be a third one between the files and the jobs.
        words = [*arguments, *drain, "--processes", "1"]
        return run_watched(lambda: int(program.main(words, name, standalone_mode=False)))
    return ChildKeeper(autoreload.get_child_arguments()).run()


def run_watched(work: Callable[[], int]) -> int:
    """Call `work`, which ends at SIGTERM, and end it when a file changes."""
    has_changed = threading.Event()
    # Without it the process was not started by a ChildKeeper, but by another reloader: RUN_MAIN is Django's.
    started_at = int(os.environ.get(STARTED_AT) or SystemClock().now_us())

    def watch() -> None:
        try:
            reloader = make_project_reloader()
            look_back(reloader, started_at)
            reloader.run(threading.main_thread())
        except SystemExit:  # how Django's reloader ends
            has_changed.set()
            os.kill(os.getpid(), signal.SIGTERM)

    def watch_parent(parent: int) -> None:
        pause = threading.Event()
        while os.getppid() == parent:
            pause.wait(CHECK_INTERVAL)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, name="drumbeat-reloader", daemon=True).start()
    threading.Thread(target=watch_parent, args=[os.getppid()], name="drumbeat-parent", daemon=True).start()
    code = work()
    return EXIT_RELOAD if has_changed.is_set() else code


def make_project_reloader() -> autoreload.BaseReloader:
    """Django's, which knows all imported modules; also for files of the project that could not be imported yet."""
    reloader = autoreload.get_reloader()
    for config in apps.get_app_configs():
        if not set(_INSTALLED) & set(Path(config.path).parts):
            reloader.watch_dir(config.path, "**/*.py")
    return reloader


def look_back(reloader: autoreload.BaseReloader, started_at: int) -> None:
    """Let the reloader notice also what has changed between the start of the process, when its modules were imported, and its
    own first look at the files, which may be seconds later: it takes what it sees there for the code that runs.

    started_at: µs, as the clock says.
    """
    look = reloader.tick

    def tick() -> Iterator[None]:
        ticker = look()
        next(ticker)
        now = SystemClock().now_us()
        for file, changed_at in read_modification_times().items():
            if started_at < 1e6 * changed_at <= now:  # not in the future: such a file would be new for ever
                reloader.notify_file_changed(file)
        yield
        yield from ticker

    reloader.tick = tick


class ChildKeeper:
    """Starts the worker's process again whenever a file has changed."""

    def __init__(self, command: Sequence[str]) -> None:
        self._command = list(command)
        self._process: subprocess.Popen[bytes] | None = None
        self._stopped = threading.Event()

    def run(self) -> int:
        with self._signals():
            while True:
                before = read_modification_times()
                code = self._run_child()
                if self._stopped.is_set() or code == 0:
                    return max(0, code)
                if code not in (EXIT_RELOAD, -signal.SIGTERM):
                    click.echo("drumbeat: the worker has ended; it starts again when a file changes", err=True)
                    while not self._stopped.wait(CHECK_INTERVAL) and read_modification_times() == before:
                        pass
                    if self._stopped.is_set():
                        return code

    def _run_child(self) -> int:
        environ = os.environ | {autoreload.DJANGO_AUTORELOAD_ENV: "true", STARTED_AT: str(SystemClock().now_us())}
        # A group of its own: a terminal's Ctrl-C comes to this process alone, and is passed on once.
        self._process = subprocess.Popen(self._command, env=environ, process_group=0)
        return self._process.wait()

    @contextmanager
    def _signals(self) -> Iterator[None]:
        def stop(number: int, frame: FrameType | None) -> None:
            self._stopped.set()
            if self._process is not None and self._process.poll() is None:
                self._process.send_signal(number)

        before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def read_modification_times() -> dict[Path, float]:
    reloader = make_project_reloader()
    times: dict[Path, float] = {}
    for file in reloader.watched_files():
        try:
            times[file] = file.stat().st_mtime
        except OSError:  # removed meanwhile
            continue
    return times
