"""Options of `drumbeat schedules create`, `change` and `preview`, and how they become arguments of `app.schedules`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from drumbeat.cli.audit_scope import current_user
from drumbeat.cli.failures import BadInput
from drumbeat.cli.options import DURATION, NAME, TIMESTAMP, document_option, option

if TYPE_CHECKING:
    from drumbeat.app import Drumbeat
    from drumbeat.cli.arguments import TypedArguments

timing_options = (
    option("--cron", metavar="EXPRESSION", help="Such as '0 3 * * *'."),
    option("--every", type=DURATION, help="An interval, such as 30s, 5m or 1h30m."),
    option(
        "--grid/--no-grid", default=None, help="With --every: at fixed times, instead of counted from the end of a run."
    ),
    option("--tz", metavar="ZONE", help="Time zone of --cron, such as Europe/Berlin. [UTC]"),
)
rule_options = (
    *timing_options,
    document_option,
    option(
        "--catch-up",
        type=click.Choice(["latest", "none", "all"]),
        help="Which fires to make up for after an outage. [latest]",
    ),
    option("--catch-up-limit", type=click.IntRange(1, 1_000), help="With --catch-up all. [100]"),
    option("--max-late", type=DURATION, help="Skip a fire that is later than this."),
    option(
        "--overlap",
        type=click.Choice(["skip", "queue", "allow", "cancel"]),
        help="What to do while the job before is not done. [skip]",
    ),
    option("--jitter", type=DURATION, help="Delay each job by a random time up to this."),
    option("--start", type=TIMESTAMP, help="No fire before this time."),
    option("--end", type=TIMESTAMP, help="No fire at this time or later."),
    option("--queue", type=NAME, help="Likewise."),
    option("--priority", type=click.IntRange(0, 9), help="Likewise."),
    option("--retries", type=click.IntRange(min=0), help="Likewise."),
    option("--timeout", type=DURATION, help="Of its jobs, instead of the task's own."),
)
"""What `@app.cron` and `@app.every` take."""

by_option = option(
    "--by",
    metavar="NAME",
    callback=lambda _ctx, _option, name: name or current_user(),
    help="Who does it; shown with the schedule. [user@host]",
)


def decode_task_arguments(app: Drumbeat, task: str, typed: TypedArguments) -> tuple[Any, ...] | dict[str, Any]:
    """The arguments as the task's signature reads them, all positional or all by name."""
    from drumbeat.cli.arguments import decode_by_signature
    from drumbeat.codec import Signature

    signature = app._internals.registry[task].signature
    if not isinstance(signature, Signature):
        raise BadInput(f"task {task} follows the end of a job (on_dead, on_success): it cannot be called otherwise")
    by_position, by_name = decode_by_signature(signature, task, typed)
    if by_position and by_name:
        raise BadInput(
            f"task {task} takes some arguments only by position and some by name: no schedule can be made for it here"
        )
    return tuple(by_position) if by_position else by_name


def is_cron_expression(text: str) -> bool:
    """A name of a schedule has no space, does not begin with @, and hardly ever has no letter."""
    return " " in text.strip() or text.startswith("@") or not any(char.isalpha() for char in text)
