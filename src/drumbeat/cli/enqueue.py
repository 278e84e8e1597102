"""`drumbeat enqueue TASK name=value ...`: enqueue a job from a shell, its arguments typed by the task's signature."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from drumbeat.cli import completion, options, output
from drumbeat.cli.audit_scope import run_audited
from drumbeat.cli.options import DURATION, KEY, NAME, TIMESTAMP, CliTarget

if TYPE_CHECKING:
    from drumbeat.app import Drumbeat
    from drumbeat.handle import JobHandle


@options.target_command(
    "enqueue",
    options.argument("task", shell_complete=completion.tasks),
    options.arguments_argument,
    options.document_option,
    options.option("--delay", type=DURATION, help="Run it after this time, such as 90, 5m or 1h30m."),
    options.option("--at", type=TIMESTAMP, help="Run it at this time, such as 2026-11-15T09:30Z."),
    options.option("--priority", type=click.IntRange(0, 9), help="0 first, 9 last."),
    options.option("--queue", type=NAME, help="Another queue than the task's own."),
    options.option("--key", type=KEY, help="A key to find, cancel or deduplicate it by."),
    options.option("--unique", is_flag=True, help="With --key: only if no live job of the task has that key."),
    options.option("--unique-pending", is_flag=True, help="Likewise, but running jobs do not count."),
    options.option("--retries", type=click.IntRange(min=0), help="Instead of the task's own."),
    options.option("--timeout", type=DURATION, help="Instead of the task's own."),
    options.option("--expires", type=DURATION, help="Do not start it later than this after it is due."),
    options.reason_option,
    *options.target_options,
)
def command(
    target: CliTarget,
    /,
    task: str,
    arguments: tuple[str, ...],
    document: str | None,
    unique: bool,
    unique_pending: bool,
    **settings: Any,
) -> None:
    """Enqueue a job of an app's task. Needs --app, or DRUMBEAT_APP.

    \b
      drumbeat enqueue charge customer=42 amount=9.90 --delay 5m --app shop:app
      drumbeat enqueue notify 'to:=["ada", "bob"]' --app shop:app
    """
    from drumbeat.cli.arguments import decode_by_signature, parse_arguments
    from drumbeat.codec import Signature

    typed = parse_arguments(arguments, document)
    given = options.drop_none(settings)
    if unique or unique_pending:
        given["unique"] = True if unique else "pending"

    async def enqueue(app: Drumbeat) -> JobHandle[Any]:
        found = app._internals.registry[task]
        bound = found.using(**given)
        args, kwargs = (
            decode_by_signature(found.signature, task, typed) if isinstance(found.signature, Signature) else ((), {})
        )
        return await bound.enqueue(*args, **kwargs)

    job = run_audited(target, "jobs.enqueue", task, enqueue, count_touched=lambda job: int(job.created), needs_app=True)
    line = job.id if job.created else f"{job.id} (not a new job: this one is live with the same key)"
    output.report(target, {"id": job.id, "created": job.created}, line)
