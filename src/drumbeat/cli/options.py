"""Options that many commands share, and the types of their values.

A group and each of its commands take the same `--url --app --namespace --json`: the last one on the line wins. Nothing is
opened here; `connection.py` does that with the collected options. Shared options are objects, in the order of the help.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

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


def argument(name: str, **settings: Any) -> click.Argument:
    return click.Argument([name], **settings)


def option(*names: str, **settings: Any) -> click.Option:
    return click.Option(names, **settings)


def _target_option(name: str, **settings: Any) -> click.Option:
    """An option that is stored in the CliTarget instead of being passed to the command."""
    return option(name, expose_value=False, callback=_store_option, **settings)


def target_command(name: str, *options: click.Parameter) -> Callable[[Callable[..., Any]], click.Command]:
    """A command that takes a CliTarget. Its own options may be decorators; these follow them."""

    def decorate(function: Callable[..., Any]) -> click.Command:
        command = click.command(name)(pass_target(function))
        command.params += options
        return command

    return decorate


url_option = _target_option(
    "--url", metavar="URL", help="The store: sqlite:///jobs.db, postgresql://host/db, redis://host. [DRUMBEAT_URL]"
)
app_option = _target_option("--app", metavar="MODULE:ATTR", help="The program's Drumbeat object. [DRUMBEAT_APP]")
target_options = (
    url_option,
    app_option,
    _target_option("--namespace", metavar="NAME", help="Namespace within a shared database. [DRUMBEAT_NAMESPACE]"),
    _target_option("--json", is_flag=True, help="For programs: exact JSON, nothing truncated or redacted."),
)
watch_option = _target_option("--watch", is_flag=True, help="Refresh every second, until Ctrl-C.")
reason_option = _target_option(
    "--reason", metavar="TEXT", default="", help="The reason, for the audit log (`drumbeat audit`)."
)
dry_option = option("--dry-run", is_flag=True, help="Only say what would be done.")


def limit_option(maximum: int, what: str) -> click.Option:
    return option("--limit", type=click.IntRange(1, maximum), default=50, show_default=True, help=f"Number of {what}.")


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


arguments_argument = argument("arguments", nargs=-1, metavar="[NAME=VALUE | NAME:=JSON]...")
document_option = option("--args", "document", metavar="JSON", help="All arguments as one JSON object.")

common_options = (
    option("--task", type=NAME, shell_complete=completion.tasks, help="Of this task."),
    option("--queue", type=NAME, shell_complete=completion.queues, help="Of this queue."),
    option("--key", type=KEY, help="With this key."),
    option("--error", "--match", "error", metavar="TEXT", help="Whose error contains this in its type or message."),
)
"""A filter of jobs."""

search_options = (
    option("--schedule", type=NAME, shell_complete=completion.schedules, help="Fires of this schedule."),
    option(
        "--instance", metavar="ID", shell_complete=completion.instances, help="That this instance runs, or ran last."
    ),
    option("--workflow", metavar="ID", shell_complete=completion.workflows, help="Of this workflow."),
    option("--since", type=PAST, metavar="WHEN", help="Enqueued at this time or later, or within: 2h."),
    option("--until", type=PAST, metavar="WHEN", help="Enqueued before this time, or longer ago: 2h."),
)
"""More of a filter."""

job_list_options = (
    *search_options,
    *common_options,
    option("--before", metavar="ID", help="Only jobs older than this one: the next page."),
    limit_option(100_000, "jobs"),
    watch_option,
)


def drop_none(options: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}
