"""`drumbeat explain ID`: why a job is not running."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from drumbeat.cli import completion, formatting, output
from drumbeat.cli.connection import call_and_show
from drumbeat.cli.options import CliTarget, target_command, target_options, watch_option

if TYPE_CHECKING:
    from drumbeat.admin import Explanation


@target_command("explain", watch_option, *target_options)
@click.argument("id", shell_complete=completion.jobs)
def command(target: CliTarget, /, id: str) -> None:
    """Explain why a job is not running: every reason that holds, the decisive one first."""

    def show(found: Explanation) -> None:
        if target.json:
            output.print_json(found)
            return
        output.print_line(f"job {found.job} is {found.view}:")
        for reason in found.reasons:
            output.print_line(f"  - {formatting.escape(reason.text)}")

    call_and_show(target, lambda app: app.jobs.explain(id), show)
