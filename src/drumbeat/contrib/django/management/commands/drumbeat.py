"""`manage.py drumbeat ...`: the whole command line of Drumbeat, with the project's app; and `run --reload` for development."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import click
from django.core.management.base import BaseCommand
from django.db import connections

from drumbeat.cli import failures
from drumbeat.cli.program import program
from drumbeat.contrib.django import reloader

_APP_VARIABLE = "DRUMBEAT_APP"
_APP_REF = "drumbeat.contrib.django.worker:app"
_DJANGO_OPTIONS = ("--settings", "--pythonpath")
"""Django has applied them before any command is called."""
_NEED_NO_PROJECT = {"demo", "glossary"}
_HELP = {"-h", "--help", "--version"}


class Command(BaseCommand):  # type: ignore[misc]
    """Passes its arguments on: options and exit codes are those of `drumbeat`."""

    help = "Background jobs: run workers, list jobs, replay dead letters ... See `manage.py drumbeat --help`."
    requires_system_checks: Sequence[str] = ()

    def run_from_argv(self, argv: list[str]) -> None:
        sys.exit(run(argv[2:], f"{Path(argv[0]).name} {argv[1]}"))

    def add_arguments(self, parser: Any) -> None:
        parser.add_argument("arguments", nargs="*")

    def handle(self, *args: Any, arguments: Sequence[str] = (), **options: Any) -> None:
        """For `call_command("drumbeat", "jobs", "list")`."""
        with redirect_stdout(self.stdout._out):
            if code := run([*args, *arguments], "drumbeat"):
                sys.exit(code)


def run(given: Sequence[str], name: str) -> int:
    """Run a command of `drumbeat`, and return its exit code."""
    arguments = list(drop_django_options(given))
    before = os.environ.get(_APP_VARIABLE)
    os.environ[_APP_VARIABLE] = _APP_REF  # for this process, and for those that it starts
    try:
        if needs_project(arguments) and (code := failures.run_and_report(load_project)):
            return code
        if arguments[:1] == ["run"]:
            add_reload_option()
            if reloader.OPTION in arguments and not _HELP & set(arguments):
                return reloader.run([each for each in arguments if each != reloader.OPTION], name)
        return int(program.main(arguments, name, standalone_mode=False))
    finally:
        if before is None:
            del os.environ[_APP_VARIABLE]
        else:
            os.environ[_APP_VARIABLE] = before
        connections.close_all()


def load_project() -> None:
    share_path()
    import drumbeat.contrib.django.worker  # noqa: F401 - the import is what loads it


def needs_project(arguments: Sequence[str]) -> bool:
    return bool(arguments) and not _HELP & set(arguments) and arguments[0] not in _NEED_NO_PROJECT


def drop_django_options(given: Sequence[str]) -> list[str]:
    """`--settings=x` and `--settings x` are not for us."""
    kept: list[str] = []
    words = iter(given)
    for word in words:
        if word in _DJANGO_OPTIONS:
            next(words, None)
        elif word.partition("=")[0] not in _DJANGO_OPTIONS:
            kept.append(word)
    return kept


def share_path() -> None:
    """A process that we start, and that does not run manage.py, must find the modules beside it."""
    folder = str(Path(sys.argv[0]).absolute().parent)
    if sys.argv[0].endswith(".py") and folder in sys.path:
        known = os.environ.get("PYTHONPATH", "").split(os.pathsep)
        if folder not in known:
            os.environ["PYTHONPATH"] = os.pathsep.join([folder, *filter(None, known)])


def add_reload_option() -> None:
    """For the help of `run`; it is taken from the arguments before."""
    from drumbeat.cli.run import command

    if not any(param.name == "reload" for param in command.params):
        text = "Restart when a file of the project changes; for development. Running jobs get 3 seconds."
        command.params.append(click.Option([reloader.OPTION], is_flag=True, expose_value=False, help=text))
