"""Options that many commands share, and the types of their values.

A group and each of its commands take the same `--url --app --namespace --json`: the last one on the line wins. Nothing is
opened here; `connection.py` does that with the collected options.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeVar

import click

from drumbeat.cli import completion
from drumbeat.clock import SYSTEM
from drumbeat.durations import from_us, seconds, to_us
from drumbeat.errors import ConfigError, DrumbeatError
from drumbeat.names import check_key, check_name

if TYPE_CHECKING:
    _ParamType = click.ParamType[Any]
else:
    _ParamType = click.ParamType  # generic only in newer releases of click

F = TypeVar("F", bound=Callable[..., Any])


class CliTarget:
    """Which store and app a command is about, and how it shows its output."""

    def __init__(self) -> None:
        self.flags: dict[str, str] = {}
        self.json = False
        self.watch = False
        self.watch_interval = 1.0
        """Seconds between two refreshes with --watch."""
        self.reason = ""
        """Of --reason, for the audit log."""
        self.store_url = ""
        """The URL of the store, without its password: an empty list is often one of the wrong store."""


pass_target = click.make_pass_decorator(CliTarget, ensure=True)


def _store_option(ctx: click.Context, param: click.Parameter, value: Any) -> None:
    target = ctx.ensure_object(CliTarget)
    if param.name in ("json", "watch"):
        setattr(target, param.name, getattr(target, param.name) or value)
    elif param.name == "reason":
        target.reason = value or ""
    elif value is not None and param.name is not None:
        target.flags[param.name] = value


def _target_option(*names: str, **settings: Any) -> Callable[[F], F]:
    """An option that is stored in the CliTarget instead of being passed to the command."""
    return click.option(*names, expose_value=False, callback=_store_option, **settings)


def target_options(command: F) -> F:
    """`--url --app --namespace --json`, for a group or a command."""
    for option in (
        _target_option("--json", is_flag=True, help="For programs: exact JSON, nothing truncated or redacted."),
        _target_option("--namespace", metavar="NAME", help="Namespace within a shared database. [DRUMBEAT_NAMESPACE]"),
        app_option,
        url_option,
    ):
        command = option(command)
    return command


url_option = _target_option(
    "--url", metavar="URL", help="The store: sqlite:///jobs.db, postgresql://host/db, redis://host. [DRUMBEAT_URL]"
)
app_option = _target_option("--app", metavar="MODULE:ATTR", help="The program's Drumbeat object. [DRUMBEAT_APP]")


watch_option = _target_option("--watch", is_flag=True, help="Refresh every second, until Ctrl-C.")

reason_option = _target_option(
    "--reason", metavar="TEXT", default="", help="The reason, for the audit log (`drumbeat audit`)."
)
dry_option = click.option("--dry-run", is_flag=True, help="Only say what would be done.")


class ValidatedType(_ParamType):
    """A type whose reader raises one of our errors; the message names the option."""

    def __init__(self, name: str, read: Callable[[str], Any]) -> None:
        self.name = name
        self._read = read

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        try:
            return self._read(value)
        except (DrumbeatError, ValueError) as error:
            self.fail(str(error), param, ctx)


def _read_timestamp(text: str) -> datetime:
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{text!r} is no timestamp: write 2026-11-15T09:30Z, or +01:00 instead of Z") from None
    if at.utcoffset() is None:
        raise ValueError(f"{text!r} has no timezone: write {at.isoformat()}Z, or an offset such as +01:00")
    to_us(at)
    return at


def _read_duration(text: str) -> float:
    try:
        return seconds(text, name="it")
    except ConfigError:
        raise ValueError(f"{text!r} is no duration: write 90 (seconds), 250ms, 5m, 2h or 1h30m") from None


def _read_past(text: str) -> datetime:
    """A timestamp, or how long ago."""
    try:
        ago = seconds(text, name="it")
    except ConfigError:
        return _read_timestamp(text)
    return from_us(SYSTEM.now_us()) - timedelta(seconds=ago)


DURATION = ValidatedType("duration", _read_duration)
TIMESTAMP = ValidatedType("timestamp", _read_timestamp)
PAST = ValidatedType("past", _read_past)
NAME = ValidatedType("name", lambda text: check_name("the name", text))
KEY = ValidatedType("key", check_key)


def common_options(command: F) -> F:
    """`--task --queue --key --error`: a filter of jobs."""
    for option in (
        click.option(
            "--error", "--match", "error", metavar="TEXT", help="Whose error contains this in its type or message."
        ),
        click.option("--key", type=KEY, help="With this key."),
        click.option("--queue", type=NAME, shell_complete=completion.queues, help="Of this queue."),
        click.option("--task", type=NAME, shell_complete=completion.tasks, help="Of this task."),
    ):
        command = option(command)
    return command


def search_options(command: F) -> F:
    """`--schedule --instance --since --until`: more of a filter."""
    for option in (
        click.option("--until", type=PAST, metavar="WHEN", help="Enqueued before this time, or longer ago: 2h."),
        click.option("--since", type=PAST, metavar="WHEN", help="Enqueued at this time or later, or within: 2h."),
        click.option(
            "--instance",
            metavar="ID",
            shell_complete=completion.instances,
            help="That this instance runs, or ran last.",
        ),
        click.option("--schedule", type=NAME, shell_complete=completion.schedules, help="Fires of this schedule."),
    ):
        command = option(command)
    return command


def filter_options(command: F) -> F:
    """The same, and `--before --limit`: for lists."""
    for option in (
        click.option("--limit", type=click.IntRange(1, 100_000), default=50, show_default=True, help="Number of jobs."),
        click.option("--before", metavar="ID", help="Only jobs older than this one: the next page."),
        common_options,
    ):
        command = option(command)
    return command
