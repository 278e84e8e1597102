"""`drumbeat doctor`: what is wrong with the store or with what runs on it, and what to do about it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from drumbeat.cli import output, words
from drumbeat.cli.connection import ask
from drumbeat.cli.options import Target, pass_target, target_options

if TYPE_CHECKING:
    from drumbeat.model.finding import Finding

STYLES = {"ok": "green", "note": "cyan", "warn": "yellow", "bad": "bold red"}


@click.command("doctor")
@target_options
@pass_target
def command(target: Target, /) -> None:
    """Look at the store and at everything on it. The exit code is 1 when something is bad.

    \b
      ok    it is as it should be
      note  worth knowing
      warn  it will be a problem, or is a small one
      bad   something does not work, or may be lost
    """
    from drumbeat.nouns.doctor import worst

    findings = ask(target, lambda app: app.system.doctor())
    level = worst(findings)
    if target.json:
        output.json_document({"level": level, "findings": findings})
    else:
        _show(target, findings)
    if level == "bad":
        raise click.exceptions.Exit(1)


def _show(target: Target, findings: list[Finding]) -> None:
    from rich.table import Table
    from rich.text import Text

    out = output.console()
    grid = Table.grid(padding=(0, 2))
    for each in findings:
        value = Text(words.escaped(each.value))
        if each.advice:
            value.append(f"\n{words.escaped(each.advice)}", style="dim")
        grid.add_row(Text(each.level, style=STYLES[each.level]), Text(words.word(each.name, 60)), value)
    out.print(grid)
    bad, warn = (sum(each.level == level for each in findings) for level in ("bad", "warn"))
    output.say("")
    output.say(f"{target.place}: {bad} bad, {words.count(warn, 'warning')}, {words.count(len(findings), 'finding')}.")
