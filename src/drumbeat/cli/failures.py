"""Turns the failure of a command into one line on stderr and an exit code.

    2    invalid input: a wrong argument, setting, name, id, or an incompatible schema
    1    valid, but not done: the store did not answer, is full, or the user declined
    130  Ctrl-C, silently
    141  the reader of the output is gone (`| head`), silently

An exception that is not one of ours is a bug and keeps its traceback.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from difflib import get_close_matches
from typing import Any

import click

from drumbeat.errors import DrumbeatError, NotTransactional, SchemaOutOfDate, StartFailed, StoreError, UniqueConflict
from drumbeat.names import is_utf8

EXIT_BAD_INPUT = 2
EXIT_NOT_DONE = 1
EXIT_INTERRUPTED = 130
EXIT_BROKEN_PIPE = 141
_NOT_DONE = (StartFailed, StoreError, UniqueConflict)


class BadInput(click.ClickException):
    """A command cannot do what was asked; the message gives the reason and what to do instead."""

    exit_code = EXIT_BAD_INPUT


class NotDone(click.ClickException):
    """A command did nothing, or not all of it, although the request was valid."""

    exit_code = EXIT_NOT_DONE


class StrictGroup(click.Group):
    """Refuses an unknown command with the list of known ones."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        known = self.list_commands(ctx)
        if args and args[0] not in known and not args[0].startswith("-"):
            near = get_close_matches(args[0], known, n=1)
            hint = f"did you mean `{ctx.command_path} {near[0]}`?" if near else f"there are {', '.join(known)}"
            raise click.UsageError(f"no command {args[0]!r}; {hint}", ctx)
        return super().resolve_command(ctx, args)


def check_text(words: Sequence[str]) -> None:
    """Refuse arguments that are not UTF-8, without repeating them: a URL may contain a password."""
    for number, word in enumerate(words, start=1):
        if not is_utf8(word):
            raise BadInput(f"argument {number} of the command line is not UTF-8: write it in UTF-8")


def run_and_report(start: Callable[[], Any]) -> int:
    """Run a command and return its exit code; failures are reported on stderr."""
    try:
        code = start()
        if not sys.stdout.closed:  # by the program's code
            sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except click.exceptions.Exit as end:
        return end.exit_code
    except (KeyboardInterrupt, click.Abort) as error:
        _print_debug_traceback(error)
        return EXIT_INTERRUPTED
    except BrokenPipeError as error:
        _print_debug_traceback(error)
        _discard_output()
        return EXIT_BROKEN_PIPE
    except (click.ClickException, DrumbeatError) as error:
        _print_debug_traceback(error)
        return _report(error)
    except BaseExceptionGroup as group:
        # A task group of a service: if all errors are ours, report the first one.
        errors = list(_flatten(group))
        if not all(isinstance(error, DrumbeatError | click.ClickException) for error in errors):
            raise
        _print_debug_traceback(group)
        return _report(errors[0])


def _report(error: BaseException) -> int:
    """Print an error of ours or of click, and return the exit code."""
    from drumbeat.cli.formatting import to_one_line
    from drumbeat.redaction import mask_urls

    message = error.format_message().rstrip(".") if isinstance(error, click.ClickException) else str(error)
    if isinstance(error, click.UsageError) and error.ctx is not None:
        message = f"{message[:1].lower()}{message[1:]} (see `{error.ctx.command_path} --help`)"
    # Many messages repeat the input, which may be a URL with a password.
    click.echo(f"drumbeat: {mask_urls(to_one_line(message))}", err=True)
    if isinstance(error, click.ClickException):
        return error.exit_code
    is_refused = isinstance(error, SchemaOutOfDate | NotTransactional)
    return EXIT_NOT_DONE if isinstance(error, _NOT_DONE) and not is_refused else EXIT_BAD_INPUT


def _print_debug_traceback(error: BaseException) -> None:
    # Not a setting: it must work when the settings are wrong.
    if os.environ.get("DRUMBEAT_DEBUG", "") not in ("", "0"):
        traceback.print_exception(error)


def _flatten(group: BaseExceptionGroup[BaseException]) -> Iterator[BaseException]:
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from _flatten(error)
        else:
            yield error


def _discard_output() -> None:
    """Python flushes stdout once more at exit, which would fail again and print an error."""
    devnull = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        try:
            os.dup2(devnull, stream.fileno())
        except (OSError, ValueError):  # a stream of a test, or closed
            continue
