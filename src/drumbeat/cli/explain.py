"""`drumbeat explain ID`: why a job is not running."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from drumbeat.cli import completion, output, words
from drumbeat.cli.connection import look
from drumbeat.cli.options import Target, pass_target, target_options, watch_option

if TYPE_CHECKING:
    from drumbeat.nouns import Explanation


@click.command("explain")
@click.argument("id", shell_complete=completion.jobs)
@watch_option
@target_options
@pass_target
def command(target: Target, /, id: str) -> None:
    """Say why a job is not running: every reason that holds, the one that counts first."""

    def show(found: Explanation) -> None:
        if target.json:
            output.json_document(found)
            return
        output.say(f"job {found.job} is {found.view}:")
        for reason in found.reasons:
            output.say(f"  - {words.escaped(reason.text)}")

    look(target, lambda app: app.jobs.explain(id), show)
