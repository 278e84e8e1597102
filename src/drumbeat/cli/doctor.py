"""`drumbeat doctor`: problems of the store and of the cluster on it, and what to do about them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from drumbeat.cli import formatting, output
from drumbeat.cli.connection import call_app
from drumbeat.cli.options import CliTarget, target_command, target_options
from drumbeat.plural import format_count

if TYPE_CHECKING:
    from drumbeat.admin.health_rules import Health
    from drumbeat.app import Drumbeat
    from drumbeat.core.health import HealthCheck

STYLES = {"ok": "green", "note": "cyan", "warn": "yellow", "bad": "bold red"}


@target_command("doctor", *target_options)
def command(target: CliTarget, /) -> None:
    """Check the store and everything on it. The exit code is 1 when something is bad.

    \b
      ok    no problem
      note  worth knowing
      warn  a small problem, or one that is likely to grow
      bad   something does not work, or may be lost
    """
    from drumbeat.admin.doctor import worst_level

    health, findings = call_app(target, _examine)
    level = worst_level(findings)
    if target.json:
        output.print_json({"level": level, "health": health, "findings": findings})
    else:
        _show_health(health)
        _show(target, findings)
    if level == "bad":
        raise click.exceptions.Exit(1)


async def _examine(app: Drumbeat) -> tuple[Health, list[HealthCheck]]:
    return await app.system.health(), await app.system.doctor()


def _show_health(health: Health) -> None:
    """The verdict that the dashboard shows, with its reasons."""
    from rich.text import Text

    out = output.console()
    if not health.reasons:
        out.print(Text(health.text, style=STYLES["ok"]))
    for reason in health.reasons:
        line = Text(formatting.to_one_line(reason.text), style=STYLES[reason.level])
        line.append(f": {formatting.to_one_line(reason.detail)}" if reason.detail else "", style="none")
        out.print(line)
    out.print()


def _show(target: CliTarget, findings: list[HealthCheck]) -> None:
    from rich.table import Table
    from rich.text import Text

    out = output.console()
    grid = Table.grid(padding=(0, 2))
    for each in findings:
        value = Text(formatting.escape(each.value))
        if each.advice:
            value.append(f"\n{formatting.escape(each.advice)}", style="dim")
        grid.add_row(Text(each.level, style=STYLES[each.level]), Text(formatting.format_value(each.name, 60)), value)
    out.print(grid)
    bad, warn = (sum(each.level == level for each in findings) for level in ("bad", "warn"))
    output.print_line("")
    output.print_line(
        f"{target.store_url}: {bad} bad, {format_count(warn, 'warning')}, {format_count(len(findings), 'finding')}."
    )
