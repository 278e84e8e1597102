"""`drumbeat limits`: list, show, set, reset; set-group and reset-group for one group. `drumbeat groups` lists groups."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from drumbeat.cli import completion, formatting, output
from drumbeat.cli.audit_scope import current_user, run_audited
from drumbeat.cli.connection import call_app
from drumbeat.cli.failures import BadInput
from drumbeat.cli.options import NAME, CliTarget, ValidatedType, argument, option, reason_option, watch_option
from drumbeat.cli.output import Column
from drumbeat.cli.resource_group import ResourceGroup
from drumbeat.durations import seconds
from drumbeat.errors import ConfigError

if TYPE_CHECKING:
    from datetime import datetime

    from drumbeat.admin.limit_records import GroupRecord, LimitRecord, LineRecord

command = ResourceGroup("limits", "Limits: how many jobs of a queue, task or group run at once and start in a time.")
Rate = tuple[int, float]
"""How many, in how many seconds."""


def _read_rate(text: str) -> Rate:
    number, slash, per = text.partition("/")
    if not slash or not number.strip().isdecimal():
        raise ValueError(f"{text!r} is no rate: write 100/1m for at most 100 starts in any minute")
    try:
        return int(number), seconds(per.strip(), name="it")
    except ConfigError:
        raise ValueError(f"{text!r} is no rate: write 100/1m, 10/1s or 5000/1h") from None


RATE = ValidatedType("rate", _read_rate)
queue_argument = argument("queue", type=NAME, shell_complete=completion.queues)
group_argument = argument("group")
task_option = option(
    "--task", type=NAME, shell_complete=completion.tasks, help="Of this task, which has limits of its own there."
)
concurrency_option = option("--concurrency", type=int, metavar="N", help="At most N jobs at once.")
rate_option = option("--rate", type=RATE, metavar="N/TIME", help="At most N starts in any such time: 100/1m.")
unlimited_option = option("--unlimited", is_flag=True, help="No limit.")


def format_limits(limits: Sequence[LimitRecord]) -> str:
    from drumbeat.admin.limit_records import describe_limits

    return describe_limits(limits) or "none"


def _format_change(line: LineRecord, now: datetime) -> str:
    if not line.is_changed:
        return formatting.EMPTY
    by, reason = formatting.format_value(line.changed_by), formatting.format_value(line.reason)
    return f"{formatting.format_ago(line.changed_at, now)} by {by}: {reason}"


LINES: output.TextTable[LineRecord] = output.TextTable(
    Column("queue", lambda line, _: formatting.format_value(line.queue, 40), elastic=True),
    Column("task", lambda line, _: formatting.format_value(line.task, 40), elastic=True),
    Column("limits", lambda line, _: format_limits(line.limits), elastic=True),
    Column("order", lambda line, _: formatting.format_value(line.order), drop=3),
    Column("fair", lambda line, _: "yes" if line.fair else "no", drop=2),
    Column("set", _format_change, elastic=True, drop=1),
)


@command.verb("list", watch_option)
def list_(target: CliTarget) -> None:
    """List the queues and tasks whose jobs stand under limits, have an order, or take turns."""
    empty = "No limit is declared in {store}: a worker declares those of its tasks when it starts."
    output.list_and_show(target, lambda app: app.limits.list(), LINES, empty=empty)


@command.verb("show", queue_argument, task_option)
def show(target: CliTarget, queue: str, task: str | None) -> None:
    """Show the limits of a queue, or of a task in it: what holds, and what code declares."""
    output.show_record(target, call_app(target, lambda app: app.limits.show(queue, task)), _show_line)


def _show_line(line: LineRecord, now: datetime) -> None:
    facts = {"queue": formatting.format_value(line.queue, 100), "task": formatting.format_value(line.task, 100)}
    facts["limits"] = format_limits(line.limits)
    facts["turns"] = "its groups take turns" if line.fair else "no"
    more = {
        "order": formatting.format_value(line.order),
        "weights": output.join_words(f"{name} {weight}" for name, weight in sorted(line.weights.items())),
        "running": formatting.format_number(line.running),
        "started in window": formatting.format_number(line.started),
        "window opens at": formatting.format_exact(line.opens_at, now),
    }
    if line.is_changed:
        more["declared"] = format_limits(line.declared)
        more["set at"] = formatting.format_exact(line.changed_at, now)
        more["set by"] = formatting.format_value(line.changed_by, 100)
        more["reason"] = formatting.format_value(line.reason, 200)
    output.show_page(facts, more)


@command.verb(
    "set",
    queue_argument,
    task_option,
    option("--concurrency", type=int, metavar="N", help="At most N jobs at once, of all together."),
    option("--rate", type=RATE, metavar="N/TIME", help="At most N starts of all in any such time: 100/1m."),
    option("--group-concurrency", type=int, metavar="N", help="At most N jobs of each group at once."),
    option("--group-rate", type=RATE, metavar="N/TIME", help="At most N starts of each group in any such time."),
    option("--unlimited", is_flag=True, help="No limit at all."),
    option("--fair/--no-fair", default=None, help="Whether its groups take turns."),
    reason_option,
)
def set_(
    target: CliTarget,
    queue: str,
    task: str | None,
    concurrency: int | None,
    rate: Rate | None,
    group_concurrency: int | None,
    group_rate: Rate | None,
    unlimited: bool,
    fair: bool | None,
) -> None:
    """Replace the limits of a queue, or of a task in it, until `limits reset`. Those that are not given end. Running jobs
    continue."""
    limits = _build_limits(concurrency, rate, per_group=False) + _build_limits(
        group_concurrency, group_rate, per_group=True
    )
    given = _check_given(limits, unlimited)
    if given is None and fair is None:
        raise BadInput(
            "which limits? Add --concurrency, --rate, --group-concurrency, --group-rate, --unlimited or --fair"
        )
    line = run_audited(
        target,
        "limits.set",
        _name_target(queue, task),
        lambda app: app.limits.set(queue, task, limits=given, fair=fair, reason=target.reason, by=current_user()),
    )
    turns = "; its groups take turns" if line.fair else ""
    output.report(target, line, f"Limits of {line.title}: {format_limits(line.limits)}{turns}.")


@command.verb("reset", queue_argument, task_option, reason_option)
def reset(target: CliTarget, queue: str, task: str | None) -> None:
    """Let the limits that code declares hold again."""
    done = run_audited(
        target,
        "limits.reset",
        _name_target(queue, task),
        lambda app: app.limits.reset(queue, task, reason=target.reason, by=current_user()),
    )
    name = _name_target(queue, task)
    line = f"Limits of {name} are those of the code again." if done else f"Nobody had set limits of {name}."
    output.report(target, {"queue": queue, "task": task, "reset": done}, line)


@command.verb(
    "set-group",
    queue_argument,
    group_argument,
    task_option,
    concurrency_option,
    rate_option,
    unlimited_option,
    option("--weight", type=int, metavar="N", help="How many jobs it gets in each turn, 1 to 100."),
    reason_option,
)
def set_group(
    target: CliTarget,
    queue: str,
    group: str,
    task: str | None,
    concurrency: int | None,
    rate: Rate | None,
    unlimited: bool,
    weight: int | None,
) -> None:
    """Give one group limits of its own instead of those for each group, or a weight."""
    given = _check_given(_build_limits(concurrency, rate, per_group=True), unlimited)
    if given is None and weight is None:
        raise BadInput("which limits? Add --concurrency, --rate, --unlimited or --weight")
    found = run_audited(
        target,
        "limits.set_group",
        _name_target(queue, task, group),
        lambda app: app.limits.set_group(queue, task, group, limits=given, weight=weight),
    )
    line = f"Group {formatting.format_value(group, 200)}: {format_limits(found.limits)}, weight {found.weight}."
    output.report(target, found, line)


@command.verb("reset-group", queue_argument, group_argument, task_option, reason_option)
def reset_group(target: CliTarget, queue: str, group: str, task: str | None) -> None:
    """Let the limits for each group hold for this one again."""
    done = run_audited(
        target,
        "limits.reset_group",
        _name_target(queue, task, group),
        lambda app: app.limits.reset_group(queue, task, group),
    )
    name = formatting.format_value(group, 200)
    line = f"Group {name} is like the others again." if done else f"Group {name} was no exception."
    output.report(target, {"queue": queue, "task": task, "group": group, "reset": done}, line)


def _build_limits(concurrency: int | None, rate: Rate | None, *, per_group: bool) -> list[LimitRecord]:
    from drumbeat.admin.limit_records import LimitRecord

    made = [] if concurrency is None else [LimitRecord(concurrency=concurrency, per_group=per_group)]
    return made if rate is None else [*made, LimitRecord(rate=rate[0], per=rate[1], per_group=per_group)]


def _check_given(limits: list[LimitRecord], unlimited: bool) -> list[LimitRecord] | None:
    """None: nothing is said about limits."""
    if unlimited and limits:
        raise BadInput("--unlimited and a limit contradict each other")
    return limits if limits or unlimited else None


def _name_target(queue: str, task: str | None, group: str | None = None) -> str:
    from drumbeat.admin.limit_records import describe_target

    return describe_target(queue, task, group)


def format_rate(group: GroupRecord) -> str:
    """3 of 100 per 1m."""
    if group.rate is None or group.rate.per is None or group.rate.rate is None:
        return formatting.EMPTY
    return f"{group.started or 0:,} of {group.rate.rate:,} per {formatting.format_seconds(group.rate.per)}"
